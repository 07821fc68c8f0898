"""What each tool for agents may be asked: one struct a tool, from which its JSON schema and its checks are made."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from backfill.types import CLAIM_KINDS

MAX_QUERY_CHARS = 10_000
MAX_NAME_CHARS = 300
MAX_K = 50
MAX_PACK_TOKENS = 40_000

Query = Annotated[str, msgspec.Meta(max_length=MAX_QUERY_CHARS)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Cursor = Annotated[str, msgspec.Meta(max_length=80, description="the `cursor` of an earlier answer, to go on after it")]
Mode = Literal["default", "distilled-vector", "verbatim-vector", "distilled-bm25", "verbatim-bm25", "claims"]


class SearchArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `search`."""

    query: Annotated[Query, msgspec.Meta(description='what to look for; words in "double quotes" must occur literally')]
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_K, description="how many exchanges")] = 8
    mode: Annotated[Mode, msgspec.Meta(description="`default` joins meaning and words")] = "default"
    project: Annotated[Name, msgspec.Meta(description="project name, last part of its path, or glob")] | None = None
    file: Annotated[Name, msgspec.Meta(description="glob of a file that the exchange touched")] | None = None
    room: Annotated[Name, msgspec.Meta(description="room key, or type:key")] | None = None
    since: Annotated[Name, msgspec.Meta(description="first day, YYYY-MM-DD")] | None = None
    until: Annotated[Name, msgspec.Meta(description="last day, YYYY-MM-DD")] | None = None
    cursor: Cursor | None = None


class ExchangeArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `get_exchange`."""

    exchange_id: Annotated[
        str, msgspec.Meta(max_length=32, description="hex, as an answer gave it; 6 or more digits are enough")
    ]
    cursor: Cursor | None = None
    query: Annotated[Query, msgspec.Meta(description="show the text around these words")] | None = None


class RoomsArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `rooms`."""

    room: Annotated[Name, msgspec.Meta(description="key or type:key; without it all rooms are listed")] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100, description="entries a page")] = 40
    cursor: Cursor | None = None


class ClaimsArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `claims`."""

    query: Annotated[Query, msgspec.Meta(description="what to look for; empty: the newest claims")] = ""
    k: Annotated[int, msgspec.Meta(ge=1, le=MAX_K, description="how many claims")] = 15
    kind: Annotated[Name, msgspec.Meta(description=f"one of {', '.join(CLAIM_KINDS)}")] | None = None
    project: Annotated[Name, msgspec.Meta(description="project name, last part of its path, or glob")] | None = None
    superseded: Annotated[bool, msgspec.Meta(description="also claims that a later one replaced")] = False
    cursor: Cursor | None = None


class PackArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Arguments of `pack`."""

    budget: Annotated[int, msgspec.Meta(ge=100, le=MAX_PACK_TOKENS, description="tokens that the text may take")]
    query: Annotated[Query, msgspec.Meta(description="pack what is best for this; without it the newest")] | None = None
    project: Annotated[Name, msgspec.Meta(description="project name, last part of its path, or glob")] | None = None
