"""The palace object as the public sees it, and the way to it from what a model wrote.

`PUBLIC_SCHEMA` describes an object row as JSON; `validate` applies it and more to a `PalaceObject`. `expand` turns a
wire text (`wire`) into an object or says why not; length, which the wire schema cannot bound, is bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from backfill.core_end import closed
from backfill.extractive import Candidate, field_text
from backfill.fidelity.grounding import MIN_SHARE, Words, flat_words, is_grounded, share_in
from backfill.ids import fingerprint as fingerprint_of
from backfill.ids import row_hash
from backfill.rooms import rooms_from, rooms_of
from backfill.text import clean_unicode, sentence_spans, tokens_est
from backfill.types import ROOM_TYPES, Exchange, FileTouched, Finding, PalaceObject, RoomAssignment, RoomType
from backfill.wire import MAX_CANDIDATES, MAX_ROOMS, WIRE_SCHEMA, WIRE_TREES, Context, Wire, WrittenWire
from backfill.written_context import align

__all__ = [
    "MAX_CANDIDATES",
    "PUBLIC_SCHEMA",
    "WIRE_SCHEMA",
    "Rejection",
    "Wire",
    "expand",
    "locate",
    "public_form",
    "schema_digest",
    "validate",
]

SCHEMA_VERSION = 2
MAX_CORE_SENTENCES = 2
MAX_CORE_TOKENS = 80
MAX_CONTEXT_TOKENS = 80
MIN_CORE_WORDS = 3

PUBLIC_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "palace object",
    "type": "object",
    "properties": {
        "exchange_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "exchange_core": {"type": "string", "minLength": 1},
        "specific_context": {"type": "string"},
        "context_field": {"type": "string", "pattern": r"^(user_text|agent_text|tools\.[0-9]+\.(head|tail))$"},
        "context_start": {"type": "integer", "minimum": 0},
        "context_end": {"type": "integer", "minimum": 0},
        "room_assignments": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_ROOMS,
            "items": {
                "type": "object",
                "properties": {
                    "room_type": {"enum": list(ROOM_TYPES)},
                    "room_key": {"type": "string", "minLength": 1},
                    "room_label": {"type": "string", "minLength": 1},
                    "relevance": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                },
                "required": ["room_type", "room_key", "room_label", "relevance"],
                "additionalProperties": False,
            },
        },
        "files_touched": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "action": {"enum": ["deleted", "created", "edited", "read", "referenced"]},
                    "origin": {"enum": ["tool", "text"]},
                },
                "required": ["path", "action", "origin"],
                "additionalProperties": False,
            },
        },
        "tier": {"enum": ["llm", "extractive", "raw"]},
        "generation": {"type": "integer"},
        "fingerprint": {"type": "string"},
        "tokens": {"type": "integer", "minimum": 0},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"kind": {"type": "string"}, "handle": {"type": "string"}, "field": {"type": "string"}},
                "required": ["kind", "handle", "field"],
                "additionalProperties": False,
            },
        },
        "source_row": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    },
    "additionalProperties": False,
}
PUBLIC_SCHEMA["required"] = list(PUBLIC_SCHEMA["properties"])

NO_CONTEXT = ("user_text", 0, 0)
_KEY = re.compile(r"[^\W_A-Z]+(_[^\W_A-Z]+)*")
_FIELD = re.compile(r"user_text|agent_text|tools\.(\d+)\.(head|tail)")
_SPACE = re.compile(r"\s+")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why an answer gives no object: `reason` is one of few fixed words (counted), `detail` is for the retry."""

    reason: str
    detail: str = ""


def schema_digest(context: Context = "pointed") -> str:
    """32 hex digits over both schemas and the bounds that `validate` adds."""
    bounds = [MAX_CORE_SENTENCES, MAX_CORE_TOKENS, MAX_CONTEXT_TOKENS, MIN_CORE_WORDS, MIN_SHARE]
    wire = WIRE_TREES[context]
    return fingerprint_of({"version": SCHEMA_VERSION, "wire": wire, "public": PUBLIC_SCHEMA, "bounds": bounds})


def expand(
    wire_text: str,
    exchange: Exchange,
    candidates: Sequence[Candidate],
    files: tuple[FileTouched, ...],
    *,
    generation: int,
    fingerprint: str,
    context: Context = "pointed",
) -> PalaceObject | Rejection:
    """The object that a wire text stands for, for this exchange row; `candidates` are those that the prompt listed.

    The candidates may come from another row of the same content: a span that does not hold in this row is looked for
    in it. A number past the list means the best candidate, and a finding says so; a `written` detail is aligned to the
    text or refused. Files come from the exchange, never from the model. The result passes `validate`.
    """
    try:
        wire = msgspec.json.decode(wire_text, type=Wire if context == "pointed" else WrittenWire)
    except msgspec.ValidationError as error:
        return Rejection("schema", str(error))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Rejection("json", str(error))
    found = _pointed(wire.x, exchange, candidates) if isinstance(wire, Wire) else _written(wire.x, exchange)
    if isinstance(found, Rejection):
        return found
    (name, start, end), findings = found
    detail = field_text(exchange, name)[start:end]
    seen = _words_of(exchange)
    rooms = _rooms(wire.r, exchange, files, seen)
    if isinstance(rooms, Rejection):
        return rooms
    core = closed(_two_sentences(_SPACE.sub(" ", clean_unicode(wire.c)).strip()), seen)
    made = PalaceObject(
        exchange_id=exchange.exchange_id,
        exchange_core=core,
        specific_context=detail,
        context_field=name,
        context_start=start,
        context_end=end,
        room_assignments=rooms,
        files_touched=files,
        tier="llm",
        generation=generation,
        fingerprint=fingerprint,
        tokens=tokens_est(core + "\n" + detail),
        findings=findings,
        source_row=row_hash(exchange),
    )
    broken = validate(made, exchange)
    if broken is None and not is_grounded(core, seen):
        broken = Rejection("ungrounded", "the summary does not speak in the words of the text")
    return broken or made


def _pointed(
    number: int, exchange: Exchange, candidates: Sequence[Candidate]
) -> tuple[tuple[str, int, int], tuple[Finding, ...]] | Rejection:
    """Where the candidate of a number stands in this row, and what is to be said of the number."""
    if number < 0:
        return Rejection("context_number", f"x is {number}")
    findings: tuple[Finding, ...] = ()
    if number > len(candidates):
        findings = (Finding("context_number", str(number), "specific_context"),)
        number = min(1, len(candidates))
    if not number:
        return NO_CONTEXT, findings
    found = locate(exchange, candidates[number - 1])
    return (found, findings) if found else Rejection("context_elsewhere", "the context stands in another row only")


def _written(said: str, exchange: Exchange) -> tuple[tuple[str, int, int], tuple[Finding, ...]] | Rejection:
    """Where a detail that was written out stands in this row."""
    said = clean_unicode(said).strip()
    if not said:
        return NO_CONTEXT, ()
    found = align(said, exchange)
    return (found, ()) if found else Rejection("context_unaligned", f"{said[:80]!r} does not stand in the text")


def locate(exchange: Exchange, candidate: Candidate) -> tuple[str, int, int] | None:
    """(field, start, end) in code points where the candidate's text stands in this row, its own place first."""
    if _slice(exchange, candidate.field, candidate.start, candidate.end) == candidate.text:
        return candidate.field, candidate.start, candidate.end
    names = ["agent_text", "user_text"]
    names += [f"tools.{i}.{part}" for i in range(len(exchange.tools)) for part in ("head", "tail")]
    for name in names:
        at = field_text(exchange, name).find(candidate.text)
        if at >= 0:
            return name, at, at + len(candidate.text)
    return None


def validate(made: PalaceObject, exchange: Exchange) -> Rejection | None:
    """The first rule of the public schema that an object breaks, or None. Raw cores may have any length."""
    core = made.exchange_core
    if not core.strip() and (exchange.user_text.strip() or exchange.agent_text.strip()):
        return Rejection("core_empty", "the core is empty")
    if made.tier != "raw" and (broken := _core_rules(core)):
        return broken
    if not _FIELD.fullmatch(made.context_field):
        return Rejection("context_field", f"no such field: {made.context_field}")
    if not 0 <= made.context_start <= made.context_end:
        return Rejection("context_slice", "the slice runs backwards")
    if _slice(exchange, made.context_field, made.context_start, made.context_end) != made.specific_context:
        return Rejection("context_slice", "the context is not the slice that it names")
    if tokens_est(made.specific_context) > MAX_CONTEXT_TOKENS:
        return Rejection("context_long", f"the context has more than {MAX_CONTEXT_TOKENS} tokens")
    if not 1 <= len(made.room_assignments) <= MAX_ROOMS:
        return Rejection("rooms", f"{len(made.room_assignments)} rooms, not 1 to {MAX_ROOMS}")
    for room in made.room_assignments:
        if room.room_type not in ROOM_TYPES or not _KEY.fullmatch(room.room_key) or not room.room_label:
            return Rejection("rooms", f"bad room {room.room_type}:{room.room_key}")
        if not 0 < room.relevance <= 1:
            return Rejection("rooms", f"relevance {room.relevance} of {room.room_key} is not in (0, 1]")
    if len({(r.room_type, r.room_key) for r in made.room_assignments}) < len(made.room_assignments):
        return Rejection("rooms", "a room is named twice")
    return None


def public_form(made: PalaceObject) -> dict[str, Any]:
    """An object as JSON of `PUBLIC_SCHEMA`: ids in hex, tuples as lists."""
    tree: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return {**tree, "exchange_id": made.exchange_id.hex(), "source_row": made.source_row.hex()}


def _slice(exchange: Exchange, name: str, start: int, end: int) -> str | None:
    """A slice of a stored text; None where the exchange has no such field."""
    try:
        return field_text(exchange, name)[start:end]
    except KeyError:
        return None


def _two_sentences(core: str) -> str:
    """The first two sentences: a third says more than a core may, and is no reason to ask again."""
    spans = sentence_spans(core)
    return core[: spans[MAX_CORE_SENTENCES - 1][1]] if len(spans) > MAX_CORE_SENTENCES else core


def _core_rules(core: str) -> Rejection | None:
    words = _WORD.findall(core)
    if len(words) < MIN_CORE_WORDS and core.isascii():
        return Rejection("core_short", f"the core has fewer than {MIN_CORE_WORDS} words")
    if _CONTROL.search(core):
        return Rejection("core_control", "the core has control characters")
    if len(sentence_spans(core)) > MAX_CORE_SENTENCES:
        return Rejection("core_sentences", f"the core has more than {MAX_CORE_SENTENCES} sentences")
    if tokens_est(core) > MAX_CORE_TOKENS:
        return Rejection("core_long", f"the core has more than {MAX_CORE_TOKENS} tokens")
    folded = [w.lower() for w in words]
    runs = [tuple(folded[i : i + 3]) for i in range(len(folded) - 2)]
    if any(runs.count(run) > 2 for run in set(runs)):
        return Rejection("core_repeats", "the core says the same words over and over")
    return None


def _rooms(
    texts: Sequence[str], exchange: Exchange, files: tuple[FileTouched, ...], seen: Words
) -> tuple[RoomAssignment, ...] | Rejection:
    """Rooms that the model named and whose words stand in the exchange; where none does, those of the exchange."""
    pairs: list[tuple[RoomType, str]] = []
    for text in texts[:MAX_ROOMS]:
        kind, _, key = text.partition(":")
        if kind not in ROOM_TYPES or not key:
            return Rejection("rooms", f"{text!r} is not type:key")
        pairs.append((kind, key))
    pairs = [pair for pair in pairs if share_in(flat_words([pair[1]]).split(), seen) >= 0.5]
    return rooms_from(pairs) or rooms_of(exchange, files)


def _words_of(exchange: Exchange) -> Words:
    """The words of all that an exchange row shows."""
    texts = [exchange.user_text, exchange.agent_text]
    for tool in exchange.tools:
        texts += [tool.name, tool.input, tool.head, tool.tail, *tool.paths]
    return Words(texts)
