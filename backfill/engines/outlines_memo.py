"""Token masks of outlines, remembered per automaton state: a plugin of vLLM (`vllm.general_plugins`).

Stock outlines walks every transition of a state for each request and step, 0.5 ms and more inside a string of a 152k
vocabulary, under the GIL. A mask depends on the automaton and its state alone, so the first one is kept and later ones
are copied: a row of 152k tokens has 19 KB. Rows are evicted least recently used first once they pass a bound on bytes.
Stock `Guide.advance` also makes a Python list of every token that is allowed next, which vLLM drops: it is told not to.
With a GPU the rows lie there (`device_masks`). The masks are those of outlines, bit for bit, so nothing here belongs
in a fingerprint. Deliberately absent: any import of vLLM before `register` is called.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections import OrderedDict
from typing import Any, TypeAlias

from backfill.engines.device_masks import MASKS, install

BYTES_VARIABLE = "BACKFILL_MASK_MEMO_BYTES"
DEFAULT_BYTES = 256 << 20
# As many as vLLM keeps compiled; numbers of older ones are forgotten, their rows age out.
MAX_INDEXES = 128

_Key: TypeAlias = tuple[int, int, int]
"""(number of the index, automaton state, words of a row)."""

_log = logging.getLogger(__name__)


class MaskMemo:
    """Rows of bitmasks by index and state, at most `max_bytes` of them together; safe for several threads."""

    def __init__(self, max_bytes: int = DEFAULT_BYTES) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self.misses = 0
        self._rows: OrderedDict[_Key, bytes] = OrderedDict()
        self._numbers: OrderedDict[int, tuple[Any, int]] = OrderedDict()
        self._given = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def number(self, index: Any) -> int:
        """The number of an index object; the object is held, so that no other one can take its id."""
        with self._lock:
            known = self._numbers.get(id(index))
            if known is None:
                self._given += 1
                known = self._numbers[id(index)] = (index, self._given)
                if len(self._numbers) > MAX_INDEXES:
                    self._numbers.popitem(last=False)
            return known[1]

    def get(self, key: _Key) -> bytes | None:
        """The row of a key, now the most recently used one."""
        row = self._rows.get(key)
        if row is not None:
            try:
                self._rows.move_to_end(key)
            except KeyError:  # another thread has just evicted it; the row in hand is as good as ever
                return row
        return row

    def put(self, key: _Key, row: bytes) -> None:
        """Keeps a row, and evicts the least recently used ones where there is no room."""
        with self._lock:
            self.misses += 1
            if key in self._rows or len(row) > self.max_bytes:
                return
            self._rows[key] = row
            self.n_bytes += len(row)
            while self.n_bytes > self.max_bytes:
                self.n_bytes -= len(self._rows.popitem(last=False)[1])


class QuietGuide:
    """A guide of outlines_core that moves on without listing what is allowed next; all else is the guide's own."""

    def __init__(self, guide: Any) -> None:
        self._guide = guide
        # Bound once: each of these is called for every token.
        self.accepts_tokens = guide.accepts_tokens
        self.get_state = guide.get_state
        self.is_finished = guide.is_finished

    def advance(self, token_id: int, return_tokens: bool | None = None) -> list[int] | None:
        """Moves on; lists the tokens only where asked to. Raises ValueError on a token that is not allowed."""
        found: list[int] | None = self._guide.advance(token_id, return_tokens=bool(return_tokens))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._guide, name)


def remember(backend: type[Any], grammar: type[Any], memo: MaskMemo) -> None:
    """Makes grammars of vLLM's outlines classes (or of classes like them) use `memo`, and a `QuietGuide`.

    Raises AttributeError where the classes lack what is patched. A grammar that `backend` has not compiled, and a
    bitmask that is not contiguous, are filled as before.
    """
    stock_index, stock_compile, stock_fill = backend._compile_index, backend.compile_grammar, grammar.fill_bitmask
    compiled = threading.local()

    def compile_index(self: Any, *args: Any, **names: Any) -> Any:
        compiled.index = stock_index(self, *args, **names)
        return compiled.index

    def compile_grammar(self: Any, *args: Any, **names: Any) -> Any:
        compiled.index = None
        made = stock_compile(self, *args, **names)
        if compiled.index is not None:
            made.memo_number = memo.number(compiled.index)
            made.guide = QuietGuide(made.guide)
            compiled.index = None
        return made

    def fill_bitmask(self: Any, bitmask: Any, idx: int) -> None:
        """Row `idx` of an int32 bitmask of shape [N, words] becomes the mask of the grammar's state."""
        number = getattr(self, "memo_number", None)
        if number is None or idx < 0 or not bitmask.is_contiguous():
            stock_fill(self, bitmask, idx)
            return
        words = bitmask.shape[1]
        target = bitmask.data_ptr() + idx * words * bitmask.itemsize
        key = (number, self.guide.get_state(), words)
        row = memo.get(key)
        if row is not None:
            ctypes.memmove(target, row, len(row))
            return
        stock_fill(self, bitmask, idx)
        memo.put(key, ctypes.string_at(target, words * bitmask.itemsize))

    backend._compile_index, backend.compile_grammar, grammar.fill_bitmask = compile_index, compile_grammar, fill_bitmask


_installed: MaskMemo | None = None


def register() -> MaskMemo | None:
    """Installs the memo in this process, once; the plugin's entry point.

    `BACKFILL_MASK_MEMO_BYTES` bounds it, and 0 leaves outlines as it is. Returns the memo, or None where there is none:
    a vLLM whose classes have changed works on as it comes.
    """
    global _installed  # noqa: PLW0603 - vLLM calls plugins more than once in a process
    limit = os.environ.get(BYTES_VARIABLE, str(DEFAULT_BYTES))
    if _installed is None and limit != "0":
        try:
            memo = MaskMemo(int(limit))
            from vllm.v1.structured_output.backend_outlines import OutlinesBackend, OutlinesGrammar

            remember(OutlinesBackend, OutlinesGrammar, memo)
            install(OutlinesBackend, OutlinesGrammar, MASKS)
        except (ImportError, AttributeError, ValueError) as error:
            _log.warning("outlines masks are not remembered: %s", error)
            return None
        _installed = memo
    return _installed
