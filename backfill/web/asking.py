"""One asking of an endpoint, as the server's threads and its search processes do it alike."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from backfill.errors import UsageError
from backfill.web.answers import ApiError, encode
from backfill.web.cache import Answer

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.web.api import Endpoint
    from backfill.web.parameters import Params

log = logging.getLogger(__name__)


def answer_from(bundle: Bundle, endpoint: Endpoint, params: Params) -> Answer:
    """The endpoint's answer, refusals of the request included.

    Raises BundleError where the bundle cannot be read: who asked may try a newer state of it.
    """
    try:
        return Answer(200, encode(endpoint.call(bundle, params)))
    except UsageError as error:
        status, kind = (404, "not_found") if endpoint.lookup else (400, "bad_request")
        return refused(ApiError(status, kind, str(error), error.hint))
    except ApiError as error:
        return refused(error)


def refused(error: ApiError) -> Answer:
    """A refusal as an answer."""
    return Answer(error.status, error.body())


def failed(path: str, error: Exception) -> Answer:
    """For an exception that nobody expected, which is logged here with its traceback and told to nobody else."""
    log.error("%s failed", path, exc_info=error)
    return refused(ApiError(500, "internal", "the server failed at this request; its log says more"))
