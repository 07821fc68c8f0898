"""The ASGI application: routes, checked parameters, a cache of finished answers, and the files of the page.

The event loop parses, looks into the cache and sends; a few threads ask the bundle (`pools`). Requests for the same
answer wait for one asking of it. Answers carry the bundle's state as their ETag, so a browser that has one pays for a
comparison.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from backfill import __version__
from backfill.errors import BackfillError, BundleError, UsageError
from backfill.filters import one_of
from backfill.web import frames
from backfill.web.answers import JSON, ApiError, error_response
from backfill.web.api import ENDPOINTS, Endpoint, searched
from backfill.web.asking import answer_from, failed, refused
from backfill.web.cache import Answer, AnswerCache
from backfill.web.files import static_routes
from backfill.web.follow import Follower, State
from backfill.web.guard import Guard
from backfill.web.parameters import Params
from backfill.web.pools import Pools
from backfill.web.processes import query_of

log = logging.getLogger(__name__)
CACHE_BYTES = 32 << 20
# Of searches: some seconds of them. Beyond that one is refused at once, and pages are still answered.
MAX_WAITING = 128
RETRY_AFTER_S = 2
# From when a search was asked to its answer, its waiting included.
SEARCH_S = 30.0


class Api:
    """Answers the endpoints from the newest state of a bundle."""

    def __init__(self, follower: Follower, pools: Pools, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._follower = follower
        self._pools = pools
        self.cache = AnswerCache(cache_bytes)
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        self._searching = 0

    def routes(self) -> list[Route]:
        """One route an endpoint."""
        return [Route(endpoint.path, self._handler(endpoint), methods=["GET"]) for endpoint in ENDPOINTS]

    def _handler(self, endpoint: Endpoint):  # type: ignore[no-untyped-def]  # starlette has no public name for it
        async def handle(request: Request) -> Response:
            params = read_params(endpoint.params, request)
            return await self._respond(endpoint, params, request)

        return handle

    async def _respond(self, endpoint: Endpoint, params: Params, request: Request) -> Response:
        state = self._follower.current()
        key = f"{state.digest} {endpoint.path} {urlencode(msgspec.structs.asdict(params))}"
        etag = f'W/"{state.digest[:24]}-{__version__}"'
        headers = {"etag": etag, "cache-control": "private, no-cache", "vary": "origin"}
        answer = self.cache.get(key)
        # A match alone does not say that the address is answered at all; what is not in the cache is looked up.
        if answer is not None and answer.status == 200 and etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if answer is None:
            answer = await self._ask(key, state, endpoint, params)
        if answer.status != 200:
            headers = {"cache-control": "no-store"}
        if answer.status == 503:
            headers["retry-after"] = str(RETRY_AFTER_S)
        return Response(answer.body, answer.status, headers, JSON)

    async def _ask(self, key: str, state: State, endpoint: Endpoint, params: Params) -> Answer:
        waiting = self._asked.get(key)
        if waiting is None:
            waiting = asyncio.ensure_future(self._in_turn(state, endpoint, params))
            self._asked[key] = waiting
            waiting.add_done_callback(lambda done: self._asked.pop(key, None))
            answer = await asyncio.shield(waiting)
            # An answer that had to come from a newer state is not this state's.
            if answer.status == 200 and self._follower.current() is state:
                self.cache.put(key, answer)
            return answer
        return await asyncio.shield(waiting)

    async def _in_turn(self, state: State, endpoint: Endpoint, params: Params) -> Answer:
        loop, pools = asyncio.get_running_loop(), self._pools
        if not endpoint.searches:
            return await loop.run_in_executor(pools.pages, self._answer, state, endpoint, params)
        if self._searching >= MAX_WAITING:
            return refused(ApiError(503, "busy", f"{MAX_WAITING} searches wait already", "ask again in some seconds"))
        self._searching += 1
        due = time.monotonic() + SEARCH_S
        try:
            query = await loop.run_in_executor(pools.encoding, _encoded, state, params)
            return await loop.run_in_executor(pools.searches, self._answer, state, endpoint, params, query, due)
        finally:
            self._searching -= 1

    def _answer(
        self,
        state: State,
        endpoint: Endpoint,
        params: Params,
        query: frames.Query | None = None,
        due: float = float("inf"),
    ) -> Answer:
        try:
            if time.monotonic() > due:
                return refused(ApiError(503, "busy", f"the search waited {SEARCH_S:.0f} s for its turn"))
            try:
                return self._answer_from(state, endpoint, params, query, due)
            except BundleError:
                # The state may be gone: `gc` after a switch takes files that were not opened yet.
                self._follower.refresh()
                newer = self._follower.current()
                if newer is state:
                    raise
                return self._answer_from(newer, endpoint, params, query and _encoded(newer, params), due)
        except BackfillError as error:
            log.error("%s: %s", endpoint.path, error)
            return refused(ApiError(500, "bundle", "a part of the bundle cannot be read", "backfill verify names it"))
        except Exception as error:
            return failed(endpoint.path, error)

    def _answer_from(
        self, state: State, endpoint: Endpoint, params: Params, query: frames.Query | None, due: float
    ) -> Answer:
        processes = self._pools.processes
        if query is None or processes is None:
            return answer_from(state.bundle, endpoint, params)
        return processes.answer(state, endpoint, params, query, due)


def make_app(follower: Follower, pools: Pools, *, port: int, cache_bytes: int = CACHE_BYTES) -> ASGIApp:
    """The application for a server that listens on `port` of the loopback interface."""
    api = Api(follower, pools, cache_bytes=cache_bytes)
    app = Starlette(
        routes=[*api.routes(), *static_routes()],
        exception_handlers={ApiError: _refused, HTTPException: _http, Exception: _failed},
    )
    # Around everything, so that an answer to a failure carries the headers as well.
    return Guard(app, port=port)


def read_params(kind: type[Params], request: Request) -> Params:
    """The checked parameters of a request. Raises ApiError 400 that names the parameter and what is wrong with it."""
    given: dict[str, str] = dict(request.path_params)
    known = kind.__struct_fields__
    for name, value in request.query_params.multi_items():
        if name in given:
            raise ApiError(400, "bad_request", f"the parameter {name[:40]!r} is given twice")
        try:
            given[one_of("parameter", name, list(known))] = value
        except UsageError as error:
            raise ApiError(400, "bad_request", str(error), error.hint) from error
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ApiError(400, "bad_request", _readable(str(error))) from error


def _encoded(state: State, params: Params) -> frames.Query:
    try:
        return query_of(state.bundle, *searched(params))
    except Exception:
        # The search meets the same fault, and answers for it.
        log.debug("a query could not be encoded ahead", exc_info=True)
        return frames.Query()


def _readable(message: str) -> str:
    """msgspec's message with the parameter's name in front."""
    text, _, place = message.partition(" - at `$.")
    return f"{place.rstrip('`')}: {text}" if place else text


async def _refused(request: Request, error: Exception) -> Response:
    return error_response(error if isinstance(error, ApiError) else ApiError(500, "internal", "the server failed"))


async def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    kinds: Mapping[int, tuple[str, str]] = {
        404: ("not_found", "nothing is at this address; /docs lists what is"),
        405: ("method_not_allowed", "only GET and HEAD are answered"),
    }
    return error_response(ApiError(status, *kinds.get(status, ("failed", "the request cannot be answered"))))


async def _failed(request: Request, error: Exception) -> Response:
    log.error("%s failed", request.url.path, exc_info=error)
    return error_response(ApiError(500, "internal", "the server failed at this request; its log says more"))
