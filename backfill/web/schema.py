"""What the API answers, as msgspec structs: encoding and the OpenAPI document come from them.

Times are ISO 8601 in UTC, ids hex. Every list has a bound and, where more may follow, a cursor for the next request;
verbatim text comes in passages of `backfill.delivery`, each with cursors to what is missing around it.
"""

from __future__ import annotations

import msgspec


class Source(msgspec.Struct, frozen=True):
    """A file relative to its source folder, and bytes [byte_start, byte_end) of it."""

    path: str
    byte_start: int
    byte_end: int


class Location(msgspec.Struct, frozen=True):
    """A place where an exchange, or a copy of it, stands."""

    exchange_id: str
    agent: str
    session_id: str
    project: str
    started_at: str | None
    source: Source


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """Characters [start, end) of one field, cut at ends of lines and sentences alone.

    `matches` are spans of `text` (code points) with words of the query. `before` and `after` are cursors to what is
    missing. `html` is the text as safe HTML, where asked for.
    """

    field: str
    text: str
    start: int
    end: int
    total: int
    inside: bool
    before: str | None
    after: str | None
    matches: list[tuple[int, int]] = []
    html: str | None = None


class Hit(msgspec.Struct, frozen=True):
    """A found exchange; `note` says why a closest miss is no hit."""

    exchange_id: str
    score: float
    session_id: str
    project: str
    agent: str
    started_at: str | None
    exchange_core: str
    specific_context: str
    rooms: list[str]
    files: list[str]
    n_files: int
    part: int
    tier: str | None
    signals: dict[str, float]
    claim: str
    note: str
    n_places: int
    places: list[Location]
    folded: list[str]
    passages: list[Passage]


class SearchAnswer(msgspec.Struct, frozen=True):
    """The best exchanges, best first; `mode` is the one that answered."""

    query: str
    mode: str
    took_ms: float
    hits: list[Hit]
    closest_miss: Hit | None
    warnings: list[str]


class Listed(msgspec.Struct, frozen=True):
    """An exchange in a list."""

    exchange_id: str
    started_at: str | None
    project: str
    agent: str
    exchange_core: str
    rooms: list[str]


class BrowseAnswer(msgspec.Struct, frozen=True):
    """`total` counts all that pass the filters."""

    exchanges: list[Listed]
    total: int
    cursor: str | None


class Room(msgspec.Struct, frozen=True):
    """`room_type` and `room_key` are the room, `relevance` how much the exchange belongs to it."""

    room_type: str
    room_key: str
    room_label: str
    relevance: float


class File(msgspec.Struct, frozen=True):
    """A file with the strongest thing that was done to it."""

    path: str
    action: str
    origin: str


class Finding(msgspec.Struct, frozen=True):
    """What a fidelity check found."""

    kind: str
    handle: str
    field: str


class PalaceObject(msgspec.Struct, frozen=True):
    """The distilled form; `specific_context` stands literally in `context_field`."""

    exchange_core: str
    specific_context: str
    context_field: str
    context_start: int
    context_end: int
    room_assignments: list[Room]
    files_touched: list[File]
    tier: str
    generation: int
    fingerprint: str
    tokens: int
    findings: list[Finding]


class Occurrence(msgspec.Struct, frozen=True):
    """A place where the exchange stands, with all that is known of it."""

    agent: str
    session_id: str
    source: str
    byte_start: int
    byte_end: int
    parent_session: str
    project: str
    cwd: str
    branch: str
    title: str
    model: str
    started_at: str | None
    ended_at: str | None
    tz_assumed: bool
    open: bool


class Claim(msgspec.Struct, frozen=True):
    """A claim; `superseded_by` is the later one that replaced it, `replacement` its text."""

    claim_id: str
    text: str
    kind: str
    date: str | None
    tier: str
    superseded_by: str | None
    replacement: str
    sources: list[Location]


class Neighbour(msgspec.Struct, frozen=True):
    """An exchange just before or after."""

    exchange_id: str
    started_at: str | None
    exchange_core: str


class Tool(msgspec.Struct, frozen=True):
    """A tool call that a passage of the page belongs to."""

    number: int
    name: str
    paths: list[str]
    cut_bytes: int


class TextAnswer(msgspec.Struct, frozen=True):
    """A page of verbatim text; `cursor` gives the next page."""

    exchange_id: str
    passages: list[Passage]
    tools: list[Tool]
    cursor: str | None


class ExchangeAnswer(msgspec.Struct, frozen=True):
    """An exchange with its first page of text. `n_*` count what lists of bounded length may leave out."""

    exchange_id: str
    part: int
    n_turns: int
    tokens_est: int
    n_tools: int
    object: PalaceObject | None
    n_files: int
    occurrences: list[Occurrence]
    n_occurrences: int
    claims: list[Claim]
    n_claims: int
    prev: list[Neighbour]
    next: list[Neighbour]
    text: TextAnswer


class RoomSummary(msgspec.Struct, frozen=True):
    """A room over all projects, or over one where that is asked for."""

    type: str
    key: str
    label: str
    exchanges: int
    last_at: str | None


class RoomsAnswer(msgspec.Struct, frozen=True):
    """The fullest rooms first."""

    rooms: list[RoomSummary]
    total: int
    cursor: str | None


class RoomHit(msgspec.Struct, frozen=True):
    """An exchange in a room."""

    exchange_id: str
    started_at: str | None
    project: str
    exchange_core: str


class RoomAnswer(msgspec.Struct, frozen=True):
    """The rooms of a key (one a type) and their exchanges."""

    rooms: list[RoomSummary]
    hits: list[RoomHit]
    cursor: str | None


class Tile(msgspec.Struct, frozen=True):
    """A room in the picture."""

    type: str
    key: str
    label: str
    exchanges: int
    last_at: str | None


class PalaceGroup(msgspec.Struct, frozen=True):
    """A group with its fullest rooms; `rest_rooms` smaller ones hold `rest_exchanges` together."""

    name: str
    exchanges: int
    rooms: int
    tiles: list[Tile]
    skipped: int
    rest_rooms: int
    rest_exchanges: int


class PalaceAnswer(msgspec.Struct, frozen=True):
    """Groups, the fullest first; `more_groups` smaller ones hold `more_exchanges` together."""

    by: str
    groups: list[PalaceGroup]
    more_groups: int
    more_exchanges: int


class ClaimsAnswer(msgspec.Struct, frozen=True):
    """`hidden` counts claims that matched, but that a later one replaced."""

    query: str
    claims: list[Claim]
    hidden: int
    cursor: str | None
    warnings: list[str]


class TimelineCell(msgspec.Struct, frozen=True):
    """Project null: all projects but the ones named."""

    month: str | None
    project: str | None
    exchanges: int
    sessions: int


class TimelineAnswer(msgspec.Struct, frozen=True):
    """Months in order, the undated (null) last; `projects` the fullest first."""

    months: list[str | None]
    projects: list[str]
    cells: list[TimelineCell]


class PackAnswer(msgspec.Struct, frozen=True):
    """`text` is Markdown; `available` counts all that passed the filters."""

    text: str
    tokens: int
    budget: int
    exchanges: int
    claims: int
    available: int


class Named(msgspec.Struct, frozen=True):
    """A value and how many exchanges have it."""

    name: str
    exchanges: int


class StatsAnswer(msgspec.Struct, frozen=True):
    """What the bundle holds. `state` changes when the bundle does; `encoder` is empty or why vectors are off."""

    version: str
    state: str
    logical_digest: str
    counts: dict[str, int]
    modes: list[str]
    encoder: str
    projects: list[Named]
    agents: list[Named]
    tiers: list[Named]
    kinds: list[Named]
    first_at: str | None
    last_at: str | None
