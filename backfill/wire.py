"""The palace object as a model writes it: a compact wire form that costs few decode tokens.

`WIRE_SCHEMAS` are what an engine is constrained to: one-letter keys, rooms as "type:key"; about 12 tokens of overhead
where full names and room objects cost 60 to 80. The context is the number of a listed candidate (`pointed`) or a copy
of a few words (`written`). Deliberately absent: maxLength and numeric bounds (outlines compiles the first at 40 ms a
character and ignores the second).
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Context: TypeAlias = Literal["pointed", "written"]

MAX_CANDIDATES = 16
MAX_ROOMS = 3

# A core for the automaton: a letter, then at most 24 words, then an end mark; no quote, backslash or control character
# but as an escape. The last word is short: where no space may follow, a small model writes on without one. It needs
# both ends: left free, it opens with a digit and counts, and never stops. A word costs some 14 states (UTF-8), all
# about 3 s of compiling for a vocabulary of 49k, once an engine start; a bound on characters costs several times that.
MAX_CORE_WORDS = 24
LETTER = r'[^"\\\x00-\x40\x5B-\x60\x7B-\x7F]'
WORD_REST = r'([^ "\\\x00-\x1F\x7F]|\\["\\/])'
_LAST = r"( [A-Za-z0-9_\-]{1,16})?"
_CORE = rf"{LETTER}{WORD_REST}*( {WORD_REST}+){{0,{MAX_CORE_WORDS - 2}}}{_LAST}[.!?]"
_ROOM = r"(file|concept|workflow):[a-z][a-z0-9]{1,15}(_[a-z0-9]{1,15}){1,3}"

# A detail that is written out, bounded as the core is.
MAX_DETAIL_WORDS = 12
_DETAIL = rf"({WORD_REST}+( {WORD_REST}+){{0,{MAX_DETAIL_WORDS - 1}}})?"


def _wire_tree(detail: dict[str, Any]) -> dict[str, Any]:
    rooms = {"type": "string", "pattern": f"^{_ROOM}$"}
    return {
        "type": "object",
        "properties": {
            "c": {"type": "string", "pattern": f"^{_CORE}$"},
            "x": detail,
            "r": {"type": "array", "minItems": 1, "maxItems": MAX_ROOMS, "items": rooms},
        },
        "required": ["c", "x", "r"],
        "additionalProperties": False,
    }


WIRE_TREES: dict[Context, dict[str, Any]] = {
    "pointed": _wire_tree({"enum": list(range(MAX_CANDIDATES + 1))}),
    "written": _wire_tree({"type": "string", "pattern": f"^{_DETAIL}$"}),
}
WIRE_SCHEMAS: dict[Context, str] = {kind: msgspec.json.encode(tree).decode() for kind, tree in WIRE_TREES.items()}
WIRE_SCHEMA = WIRE_SCHEMAS["pointed"]


class Wire(msgspec.Struct, forbid_unknown_fields=True):
    """The answer as the model writes it: core, number of the candidate (0: none), rooms as "type:key"."""

    c: str
    x: int
    r: list[str]


class WrittenWire(msgspec.Struct, forbid_unknown_fields=True):
    """The answer where the context is written out: core, detail (empty: none), rooms as "type:key"."""

    c: str
    x: str
    r: list[str]
