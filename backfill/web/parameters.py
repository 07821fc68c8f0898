"""What a request may ask, as msgspec structs: checking and the parameters of the OpenAPI document come from them.

Empty values set nothing; every number and text has bounds.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Text: TypeAlias = Annotated[str, Meta(max_length=2_000)]
Term: TypeAlias = Annotated[str, Meta(max_length=500)]
Cursor: TypeAlias = Annotated[str, Meta(max_length=80, description="from the answer before; empty for the first page")]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=200)]
RoomType: TypeAlias = Literal["", "file", "concept", "workflow"]


class Params(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of a request; one that is not named here is refused."""


class FilterParams(Params, frozen=True, kw_only=True):
    """Conditions on exchanges; empty ones set none."""

    project: Annotated[Term, Meta(description="name, last part of a path, or glob")] = ""
    agent: Annotated[Term, Meta(description="the reader that took the transcript in")] = ""
    room: Annotated[Term, Meta(description="key or type:key")] = ""
    file: Annotated[Term, Meta(description="glob over a path or its end")] = ""
    since: Annotated[Term, Meta(description="YYYY-MM-DD (UTC) or ISO 8601")] = ""
    until: Annotated[Term, Meta(description="YYYY-MM-DD (UTC, that day included) or ISO 8601")] = ""
    tier: Annotated[Term, Meta(description="llm, extractive or raw")] = ""
    kind: Annotated[Term, Meta(description="kind of claim")] = ""


class SearchParams(FilterParams, frozen=True, kw_only=True):
    """`q` may hold "quoted phrases", which must occur literally."""

    q: Text
    k: Annotated[int, Meta(ge=1, le=50, description="how many exchanges")] = 10
    mode: Annotated[Term, Meta(description="see modes of /api/stats")] = "default"
    per_session: Annotated[bool, Meta(description="the best exchange of each session alone")] = False
    chars: Annotated[int, Meta(ge=320, le=8_000, description="of verbatim text a hit, about")] = 1_200


class BrowseParams(FilterParams, frozen=True, kw_only=True):
    """Exchanges without a query, the newest first."""

    limit: Limit = 50
    cursor: Cursor = ""


class ExchangeParams(Params, frozen=True, kw_only=True):
    """`render` adds safe HTML to each passage."""

    id: Annotated[str, Meta(pattern="^[0-9a-fA-F]{6,32}$", description="6 to 32 hex digits of an exchange's id")]
    q: Annotated[Text, Meta(description="shows the text around these words first")] = ""
    chars: Annotated[int, Meta(ge=320, le=40_000, description="of verbatim text, about")] = 8_000
    render: Literal["", "html"] = ""


class TextParams(ExchangeParams, frozen=True, kw_only=True):
    """A page of an exchange's verbatim text."""

    cursor: Cursor = ""


class RoomsParams(Params, frozen=True, kw_only=True):
    """`q` is a part of a room's key."""

    type: RoomType = ""
    project: Term = ""
    q: Term = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RoomParams(Params, frozen=True, kw_only=True):
    """A room's exchanges, the newest first."""

    key: Annotated[str, Meta(min_length=1, max_length=500, description="key or type:key")]
    limit: Limit = 50
    cursor: Cursor = ""


class PalaceParams(Params, frozen=True, kw_only=True):
    """Groups of rooms; with `group` the rooms of one group, `skip` of them left out."""

    by: Literal["type", "project"] = "type"
    group: Annotated[str, Meta(max_length=500)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500, description="rooms in all")] = 240
    skip: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class ClaimsParams(FilterParams, frozen=True, kw_only=True):
    """Without `q` the newest claims; `superseded` shows those too that a later one replaced."""

    q: Text = ""
    superseded: bool = False
    limit: Limit = 50
    cursor: Cursor = ""


class TimelineParams(FilterParams, frozen=True, kw_only=True):
    """`projects`: how many, the fullest, have bars of their own; the others are added up under null."""

    projects: Annotated[int, Meta(ge=1, le=50)] = 9


class PackParams(FilterParams, frozen=True, kw_only=True):
    """Distilled text for a prompt."""

    budget: Annotated[int, Meta(ge=1, le=200_000, description="tokens")] = 4_000
    q: Text = ""
    what: Literal["objects", "claims", "both"] = "objects"
    ids: bool = False


class NoParams(Params, frozen=True, kw_only=True):
    """None."""
