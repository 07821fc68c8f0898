"""What a query wants exactly: quoted phrases, `path:` and `error:` terms. Found by index first, by reading second.

`"lock wait timeout"` must stand in the text, whatever its case. `path:src/app.py` must be a file that the exchange
touched or names, whole or by the end of its path. `error:ECONNREFUSED` must stand in the text, or in the output of a
tool, as a word of its own. Either takes quotes for what has spaces: `path:"My Notes.md"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from backfill import signals
from backfill.signals import Mask

if TYPE_CHECKING:
    from backfill.bundle import Bundle, Segment

_TERM = re.compile(
    r'(?:(?<!\S)(?P<field>path|error):)?"(?P<quoted>[^"]+)"|(?<!\S)(?P<field2>path|error):(?P<bare>[^\s"]+)'
)


@dataclass(frozen=True, slots=True)
class ExactTerms:
    """The exact parts of a query; all of them must hold."""

    phrases: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.phrases or self.paths or self.errors)

    @property
    def name(self) -> str:
        """What to call them in a sentence."""
        return "the phrase" if self.phrases and not (self.paths or self.errors) else "an exact term"


def take_apart(query: str) -> tuple[str, ExactTerms]:
    """(the query's words without quotes and prefixes, its exact terms)."""
    found: dict[str, list[str]] = {"phrase": [], "path": [], "error": []}
    for match in _TERM.finditer(query):
        text = (match["quoted"] or match["bare"]).strip()
        if text:
            found[match["field"] or match["field2"] or "phrase"].append(text)
    words = _TERM.sub(lambda match: f" {match['quoted'] or match['bare']} ", query).replace('"', " ").strip()
    paths = (path.replace("\\", "/").removeprefix("./") for path in found["path"])
    return words, ExactTerms(tuple(found["phrase"]), tuple(paths), tuple(found["error"]))


def exact_mask(bundle: Bundle, exact: ExactTerms, mask: Mask) -> Mask:
    """[documents] true where the document passes `mask` and all exact terms hold."""
    for path in exact.paths:
        mask = mask & _named_files(bundle, path)
    if exact.phrases:
        mask = _by_index_then_text(bundle, exact.phrases, mask, partial(_has_all, exact.phrases), in_tools=False)
    for error in exact.errors:
        mask = _by_index_then_text(bundle, (error,), mask, partial(_has_word, error), in_tools=True)
    return mask


def _has_all(phrases: Sequence[str], text: str) -> bool:
    return all(phrase.casefold() in text for phrase in phrases)


def _has_word(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word.casefold())}(?!\w)", text) is not None


def _by_index_then_text(
    bundle: Bundle, phrases: Sequence[str], mask: Mask, holds: Callable[[str], bool], in_tools: bool
) -> Mask:
    """Reads the documents that share a token with each phrase; all that pass the mask where none of them will do.

    For a phrase may begin or end within a word. With `in_tools` what tools said is read last.
    """
    likely = mask.copy()
    if any(segment.has("bm25:verbatim") for segment in bundle.segments):
        from backfill.indexes.tokenizer import tokenize

        for phrase in phrases:
            terms = tokenize(phrase)
            if terms:
                likely &= signals.bm25(bundle, "verbatim", terms) > 0
    found = _read(bundle, likely, _spoken, holds)
    if not found.any():
        found = _read(bundle, mask & ~likely, _spoken, holds)
    return found if found.any() or not in_tools else _read(bundle, mask, _tool_output, holds)


def _read(
    bundle: Bundle, mask: Mask, texts: Callable[[Segment, Sequence[int]], Iterable[str]], holds: Callable[[str], bool]
) -> Mask:
    found = np.zeros(len(mask), np.bool_)
    base = signals.starts(bundle, "documents")
    for number, segment in enumerate(bundle.segments):
        docs = np.flatnonzero(mask[base[number] : base[number + 1]])
        positions = segment.docs.exchange_row[docs].tolist()
        for doc, text in zip(docs, texts(segment, positions), strict=True):
            found[base[number] + doc] = holds(text)
    return found


def _spoken(segment: Segment, positions: Sequence[int]) -> list[str]:
    """Folded text of the rows; a character that no phrase can hold stands between the two fields."""
    rows = segment.table("exchanges").rows_at(("user_text", "agent_text"), positions)
    return [f"{rows[at]['user_text']}\0{rows[at]['agent_text']}".casefold() for at in positions]


def _tool_output(segment: Segment, positions: Sequence[int]) -> list[str]:
    rows = segment.table("exchanges").rows_at(("tools",), positions)
    return ["\0".join(f"{t['head']}\0{t['tail']}" for t in rows[at]["tools"] or ()).casefold() for at in positions]


def _named_files(bundle: Bundle, path: str) -> Mask:
    masks: list[Mask] = [np.zeros(0, np.bool_)]
    for segment in bundle.segments:
        rows = np.zeros(1, np.bool_)
        if segment.has("objects"):
            files = segment.labels("objects", "files_touched")
            # Row -1 (no object) reads the extra false at the end.
            rows = np.append(files.rows_with(lambda name: name == path or name.endswith(f"/{path}")), False)
        masks.append(rows[segment.docs.object_row])
    return np.concatenate(masks)
