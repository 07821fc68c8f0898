"""What a query wants exactly: quoted phrases, `path:` and `error:` terms. Found by index first, by reading second.

`"lock wait timeout"` must stand in the text, whatever its case. `path:src/app.py` must be a file that the exchange
touched or names, whole or by the end of its path. `error:ECONNREFUSED` must stand in the text, or in the output of a
tool, as a word of its own. Either takes quotes for what has spaces: `path:"My Notes.md"`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from backfill import signals
from backfill.signals import Mask, Units
from backfill.text_pages import read_cells

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.columns import ParquetFile

# 2,048 exchanges of 371 tokens are 3 MB of text.
_GROUPS_AT_ONCE = 8
# So many are read by their pages.
_FEW_DOCUMENTS = 200
_SPOKEN = ("user_text", "agent_text")

_TERM = re.compile(
    r'(?:(?<!\S)(?P<field>path|error):)?"(?P<quoted>[^"]+)"|(?<!\S)(?P<field2>path|error):(?P<bare>[^\s"]+)'
)


class ExactTerms(msgspec.Struct, frozen=True):
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
    """Reads the documents that share words with each phrase; all that pass the mask where none of them will do.

    For a phrase may begin or end within a word. With `in_tools` what tools said is read last.
    """
    likely = mask.copy()
    if any(segment.has("bm25:verbatim") for segment in bundle.segments):
        for phrase in phrases:
            for words in _words_to_share(phrase):
                likely &= signals.bm25(bundle, "verbatim", words) > 0
    found = _spoken(bundle, likely, phrases, holds)
    if not found.any():
        found = _spoken(bundle, mask & ~likely, phrases, holds)
    return found if found.any() or not in_tools else _said_by_tools(bundle, mask, phrases, holds)


def _words_to_share(phrase: str) -> Iterator[list[str]]:
    """Terms of which a text with the phrase has one each: of every word inside it, and of its first and last."""
    from backfill.indexes.tokenizer import tokenize

    first, *inside = phrase.split()
    last = inside[-1:]
    for terms in (tokenize(" ".join((first, *last))), *map(tokenize, inside[:-1])):
        if terms:
            yield terms


def _spoken(bundle: Bundle, mask: Mask, phrases: Sequence[str], holds: Callable[[str], bool]) -> Mask:
    """[documents] true where what was said, folded, passes `holds`; documents without the phrases need not be asked."""
    found = np.zeros(len(mask), np.bool_)
    few = np.count_nonzero(mask) <= _FEW_DOCUMENTS
    for table, docs, rows in _wanted(bundle, mask):
        if few:
            cells = read_cells([(table, name, row) for row in rows.tolist() for name in _SPOKEN])
            texts = [(cells[table, "user_text", row], cells[table, "agent_text", row]) for row in rows.tolist()]
            found[docs] = [holds(_folded(pair)) for pair in texts]
            continue
        for groups, here in _some_groups(table, rows):
            columns = table.read(_SPOKEN, groups)
            pairs = list(zip(*columns.values(), strict=True))
            if _has_all(phrases, _folded(text for pair in pairs for text in pair)):
                at = rows[here] - table.group_starts[groups[0]]
                found[docs[here]] = [holds(_folded(pairs[row])) for row in at.tolist()]
    return found


def _said_by_tools(bundle: Bundle, mask: Mask, phrases: Sequence[str], holds: Callable[[str], bool]) -> Mask:
    """As `_spoken`, for what tools printed. Most texts are looked through as one, which takes a tenth of the time."""
    found = np.zeros(len(mask), np.bool_)
    for table, docs, rows in _wanted(bundle, mask):
        for groups, here in _some_groups(table, rows):
            if _has_all(phrases, _folded(table.texts(("tools.head", "tools.tail"), groups))):
                cells = table.rows_at(("tools",), rows[here].tolist())
                tools = [cells[row]["tools"] or () for row in rows[here].tolist()]
                found[docs[here]] = [
                    holds(_folded(text for t in calls for text in (t["head"], t["tail"]))) for calls in tools
                ]
    return found


def _wanted(bundle: Bundle, mask: Mask) -> Iterator[tuple[ParquetFile, Units, Units]]:
    """(table of exchanges, documents of `mask`, their rows in it, rising) of each segment that has any."""
    base = signals.starts(bundle, "documents")
    for number, segment in enumerate(bundle.segments):
        docs = np.flatnonzero(mask[base[number] : base[number + 1]])
        if len(docs):
            rows = segment.docs.exchange_row[docs].astype(np.int64)
            order = np.argsort(rows, kind="stable")
            yield segment.table("exchanges"), docs[order] + base[number], rows[order]


def _some_groups(table: ParquetFile, rows: Units) -> Iterator[tuple[list[int], Units]]:
    """Neighbouring row groups that hold some of `rows`, and which of these: positions in `rows`."""
    group_of = np.searchsorted(table.group_starts, rows, side="right") - 1
    at = 0
    while at < len(rows):
        first = int(group_of[at])
        past = int(np.searchsorted(group_of, first + _GROUPS_AT_ONCE, side="left"))
        yield list(range(first, int(group_of[past - 1]) + 1)), np.arange(at, past)
        at = past


def _folded(texts: Iterable[str | None]) -> str:
    """Texts as one to look in; a character that no phrase can hold stands between two."""
    return "\0".join(text or "" for text in texts).casefold()


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
