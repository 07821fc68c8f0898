"""The endpoints: each a function of an open bundle and checked parameters, and the table that routes them.

Everything runs in worker threads; nothing here knows of HTTP beyond the status of a refusal. Answers are bounded:
verbatim text by `chars`, lists by a limit or by the constants below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from backfill import __version__
from backfill.delivery import ExchangePage, Passage, exchange_page
from backfill.errors import UsageError
from backfill.filters import FilterOptions, Filters
from backfill.hits import Hit
from backfill.query import SearchResult
from backfill.question import query_encoder
from backfill.trees import iso, plain
from backfill.web import browse, palace, parameters, schema
from backfill.web.answers import ApiError

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.detail import ExchangeDetail
    from backfill.types import Exchange

MAX_FILES = 200
MAX_PLACES = 50
MAX_CLAIMS = 50
MAX_NEIGHBOURS = 20
MAX_MENU = 200
MAX_START = 10_000_000

S = TypeVar("S", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address; a name in braces in `path` is a field of `params`. With `lookup` what is not found is 404.

    `searches`: it may rank the whole bundle, so such requests are answered one after the other.
    """

    path: str
    summary: str
    params: type[parameters.Params]
    answer: type[msgspec.Struct]
    call: Callable[[Bundle, Any], msgspec.Struct]
    lookup: bool = False
    searches: bool = False


def search(bundle: Bundle, params: parameters.SearchParams) -> schema.SearchAnswer:
    """The best exchanges for `q`."""
    result = bundle.search(params.q, k=params.k, mode=params.mode, per_session=params.per_session, **_options(params))
    miss = result.closest_miss
    return schema.SearchAnswer(
        query=result.query,
        mode=result.mode,
        took_ms=result.took_ms,
        hits=[_hit(result, hit, params.chars) for hit in result.hits],
        closest_miss=None if miss is None else _hit(result, miss, params.chars),
        warnings=list(result.warnings),
    )


def searched(params: parameters.Params) -> tuple[str, str]:
    """(text, mode) of the search that a request makes; empty text where it makes none."""
    if isinstance(params, parameters.SearchParams):
        return params.q, params.mode
    if isinstance(params, parameters.ClaimsParams):
        return params.q, "claims"
    if isinstance(params, parameters.PackParams):
        return params.q, "default"
    return "", "default"


def list_exchanges(bundle: Bundle, params: parameters.BrowseParams) -> schema.BrowseAnswer:
    """The exchanges that pass the filters, the newest first."""
    start = _start(params.cursor)
    hits, total = browse.newest(bundle, Filters.parse(**_options(params)), start, params.limit)
    listed = [
        schema.Listed(h.exchange_id, h.started_at, h.project, h.agent, h.exchange_core or _first_line(h), list(h.rooms))
        for h in hits
    ]
    return schema.BrowseAnswer(listed, total, _following(start, params.limit, total))


def get_exchange(bundle: Bundle, params: parameters.ExchangeParams) -> schema.ExchangeAnswer:
    """An exchange: its object beside its verbatim text, claims, places and neighbours."""
    detail = bundle.exchange(params.id)
    exchange = detail.exchange
    page = exchange_page(exchange, query=params.q, limit_chars=params.chars)
    return schema.ExchangeAnswer(
        exchange_id=exchange.exchange_id.hex(),
        part=exchange.part,
        n_turns=exchange.n_turns,
        tokens_est=exchange.tokens_est,
        n_tools=len(exchange.tools),
        object=_object(detail),
        n_files=len(detail.object.files_touched) if detail.object else 0,
        occurrences=[_shaped(plain(place), schema.Occurrence) for place in detail.occurrences[:MAX_PLACES]],
        n_occurrences=len(detail.occurrences),
        claims=[_claim(claim) for claim in detail.claims[:MAX_CLAIMS]],
        n_claims=len(detail.claims),
        prev=[_shaped(one, schema.Neighbour) for one in detail.prev[:MAX_NEIGHBOURS]],
        next=[_shaped(one, schema.Neighbour) for one in detail.next[:MAX_NEIGHBOURS]],
        text=_text(exchange, page, params.render),
    )


def get_text(bundle: Bundle, params: parameters.TextParams) -> schema.TextAnswer:
    """A page of an exchange's verbatim text; pages that follow their cursors give it whole."""
    exchange = bundle.exchange(params.id).exchange
    try:
        page = exchange_page(exchange, query=params.q, cursor=params.cursor or None, limit_chars=params.chars)
    except UsageError as error:
        raise ApiError(400, "bad_request", str(error), error.hint) from error
    return _text(exchange, page, params.render)


def list_rooms(bundle: Bundle, params: parameters.RoomsParams) -> schema.RoomsAnswer:
    """The rooms, the fullest first."""
    start = _start(params.cursor)
    rooms, total = palace.list_rooms(bundle, params, start)
    return schema.RoomsAnswer(rooms, total, _following(start, params.limit, total))


def get_room(bundle: Bundle, params: parameters.RoomParams) -> schema.RoomAnswer:
    """A room and its exchanges, the newest first."""
    start = _start(params.cursor)
    page = bundle.rooms(params.key, limit=params.limit, cursor=str(start))
    hits = [_shaped(hit, schema.RoomHit) for hit in page.hits or ()]
    return schema.RoomAnswer([_shaped(room, schema.RoomSummary) for room in page.rooms], hits, page.cursor)


def get_palace(bundle: Bundle, params: parameters.PalaceParams) -> schema.PalaceAnswer:
    """Rooms as areas: groups by type or project, with the tail added up."""
    return palace.picture(bundle, params)


def list_claims(bundle: Bundle, params: parameters.ClaimsParams) -> schema.ClaimsAnswer:
    """Claims with their sources and what replaced them."""
    start = _start(params.cursor)
    k = min(start + params.limit + 1, 10_000)
    result = bundle.claims(params.q, k=k, superseded=params.superseded, **_options(params))
    page = [_claim(claim) for claim in result.claims[start : start + params.limit]]
    following = _following(start, params.limit, len(result.claims))
    return schema.ClaimsAnswer(result.query, page, result.hidden, following, list(result.warnings))


def get_timeline(bundle: Bundle, params: parameters.TimelineParams) -> schema.TimelineAnswer:
    """Exchanges and sessions by month and project."""
    entries = bundle.timeline(**_options(params))
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.project] = sizes.get(entry.project, 0) + entry.exchanges
    projects = sorted(sizes, key=lambda name: (-sizes[name], name))[: params.projects]
    named = frozenset(projects)
    cells: dict[tuple[str | None, str | None], list[int]] = {}
    for entry in entries:
        cell = cells.setdefault((entry.month, entry.project if entry.project in named else None), [0, 0])
        cell[0] += entry.exchanges
        cell[1] += entry.sessions
    months = list(dict.fromkeys(entry.month for entry in entries))
    return schema.TimelineAnswer(
        months, projects, [schema.TimelineCell(month, name, *cell) for (month, name), cell in cells.items()]
    )


def get_pack(bundle: Bundle, params: parameters.PackParams) -> schema.PackAnswer:
    """Distilled text that fits a token budget, for a prompt."""
    pack = bundle.pack(params.budget, params.q or None, what=params.what, ids=params.ids, **_options(params))
    return _shaped(pack, schema.PackAnswer)


def get_stats(bundle: Bundle, params: parameters.NoParams) -> schema.StatsAnswer:
    """What the bundle holds, and the values that filters may take."""
    return bundle.once("web:stats", _stats, bundle)


ENDPOINTS = (
    Endpoint("/api/search", "Search", parameters.SearchParams, schema.SearchAnswer, search, searches=True),
    Endpoint("/api/exchanges", "List exchanges", parameters.BrowseParams, schema.BrowseAnswer, list_exchanges),
    Endpoint(
        "/api/exchanges/{id}", "One exchange", parameters.ExchangeParams, schema.ExchangeAnswer, get_exchange, True
    ),
    Endpoint("/api/exchanges/{id}/text", "Its verbatim text", parameters.TextParams, schema.TextAnswer, get_text, True),
    Endpoint("/api/rooms", "List rooms", parameters.RoomsParams, schema.RoomsAnswer, list_rooms),
    Endpoint("/api/rooms/{key}", "One room", parameters.RoomParams, schema.RoomAnswer, get_room, True),
    Endpoint("/api/palace", "Rooms as areas", parameters.PalaceParams, schema.PalaceAnswer, get_palace, True),
    Endpoint("/api/claims", "Claims", parameters.ClaimsParams, schema.ClaimsAnswer, list_claims, searches=True),
    Endpoint("/api/timeline", "Months and projects", parameters.TimelineParams, schema.TimelineAnswer, get_timeline),
    Endpoint(
        "/api/pack", "Distilled text for a prompt", parameters.PackParams, schema.PackAnswer, get_pack, searches=True
    ),
    Endpoint("/api/stats", "What the bundle holds", parameters.NoParams, schema.StatsAnswer, get_stats),
)


def _options(params: parameters.FilterParams) -> FilterOptions:
    options: FilterOptions = {}
    for name in parameters.FilterParams.__struct_fields__:
        options[name] = getattr(params, name) or None  # type: ignore[literal-required]
    return options


def _start(cursor: str) -> int:
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit()) or int(cursor) > MAX_START:
        raise ApiError(400, "bad_request", f"{cursor[:40]!r} is not a cursor that an earlier answer gave")
    return int(cursor)


def _following(start: int, limit: int, total: int) -> str | None:
    return str(start + limit) if start + limit < total else None


def _shaped(value: object, kind: type[S]) -> S:
    return msgspec.convert(value, kind, from_attributes=True)


def _first_line(hit: Hit) -> str:
    return next((line.strip() for line in hit.user_text.split("\n") if line.strip()), "")[:200]


def _hit(result: SearchResult, hit: Hit, chars: int) -> schema.Hit:
    names = ("exchange_id", "score", "session_id", "project", "agent", "started_at", "exchange_core",
             "specific_context", "part", "tier", "signals", "claim", "note")  # fmt: skip
    return schema.Hit(
        **{name: getattr(hit, name) for name in names},
        rooms=list(hit.rooms),
        files=list(hit.files[:MAX_FILES]),
        n_files=len(hit.files),
        n_places=len(hit.places),
        places=[_shaped(place, schema.Location) for place in hit.places[:MAX_PLACES]],
        folded=list(hit.folded[:MAX_PLACES]),
        passages=[_passage(one) for one in result.passages(hit, chars)],
    )


def _passage(passage: Passage, render: str = "") -> schema.Passage:
    shaped = _shaped(passage, schema.Passage)
    if render != "html":
        return shaped
    from backfill.web.markup import render_code, render_markdown

    prose = passage.field in ("user_text", "agent_text", "thinking")
    return msgspec.structs.replace(shaped, html=(render_markdown if prose else render_code)(passage.text))


def _text(exchange: Exchange, page: ExchangePage, render: str) -> schema.TextAnswer:
    numbers = sorted({int(one.field.split(".")[1]) for one in page.passages if one.field.startswith("tools.")})
    tools = [(number, exchange.tools[number]) for number in numbers]
    return schema.TextAnswer(
        page.exchange_id,
        [_passage(passage, render) for passage in page.passages],
        [schema.Tool(number, tool.name, list(tool.paths[:MAX_FILES]), tool.cut_bytes) for number, tool in tools],
        page.cursor,
    )


def _object(detail: ExchangeDetail) -> schema.PalaceObject | None:
    if detail.object is None:
        return None
    tree: Mapping[str, Any] = plain(detail.object)
    return _shaped({**tree, "files_touched": tree["files_touched"][:MAX_FILES]}, schema.PalaceObject)


def _claim(claim: object) -> schema.Claim:
    shaped = _shaped(claim, schema.Claim)
    return msgspec.structs.replace(shaped, sources=shaped.sources[:MAX_PLACES])


def _stats(bundle: Bundle) -> schema.StatsAnswer:
    encoder, reason = query_encoder(bundle) if bundle.segments else (None, "")
    first, last = browse.span(bundle)
    return schema.StatsAnswer(
        version=__version__,
        state=bundle.manifest.logical_digest[:16],
        logical_digest=bundle.manifest.logical_digest,
        counts=dict(bundle.manifest.counts),
        modes=list(bundle.modes()) if bundle.segments else [],
        encoder="" if encoder is not None else reason,
        projects=_menu(bundle, "occurrences", "project"),
        agents=_menu(bundle, "occurrences", "agent"),
        tiers=_menu(bundle, "objects", "tier"),
        kinds=_kinds(bundle),
        first_at=iso(first),
        last_at=iso(last),
    )


def _menu(bundle: Bundle, table: str, column: str) -> list[schema.Named]:
    return [schema.Named(name, n) for name, n in browse.counted(bundle, table, column)[:MAX_MENU]]


def _kinds(bundle: Bundle) -> list[schema.Named]:
    from backfill.claim_index import claim_kinds

    kinds = [str(kind) for kind in claim_kinds(bundle).tolist()]
    return [schema.Named(kind, kinds.count(kind)) for kind in sorted(set(kinds))]
