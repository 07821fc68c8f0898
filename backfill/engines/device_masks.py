"""Rows of token masks on the device: vLLM hands over state numbers instead of masks. Part of the plugin.

vLLM's scheduler writes one row of V / 32 words a request and step, its worker copies and uploads them (19 KB each for
152k tokens) and applies them by a kernel. Here the rows of states that were seen lie on the device; what the scheduler
writes is a number in one more word of the row, -1 where the row counts as it stands. So whatever vLLM does with rows
(filling, copying, reordering) holds. The worker uploads the numbers alone, and `backfill_kernels.automaton_mask`
applies the rows in one launch.

It needs scheduler and worker in one process, so one GPU an engine, and outlines with remembered masks; everything else
keeps vLLM's own path. The first launch is compared with vLLM's own result to the bit, and where they differ the path is
left for good. Deliberately absent: eviction; a table that is full keeps its rows, and further states go vLLM's way.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

VARIABLE = "BACKFILL_DEVICE_MASKS"
"""`auto` (on CUDA), `1` (wherever it can work, for tests) or `0`."""
# 3,500 states of a 152k vocabulary; our own schema has 351 in 92,000 masks.
MAX_BYTES = 64 << 20
_FIRST_ROWS = 256
_WORKERS = ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.structured_outputs")

I32 = npt.NDArray[np.int32]
_log = logging.getLogger(__name__)


class RowTable:
    """Rows [S, W] int32 by key, on the host, and on a device up to where it was last asked for; safe for threads."""

    def __init__(self, words: int, max_bytes: int = MAX_BYTES) -> None:
        import torch

        self.words = words
        self.rows = torch.empty((max_bytes // (4 * words), words), dtype=torch.int32)
        self._slots: dict[Any, int] = {}
        self._lock = threading.Lock()
        self._device_rows: Any = None
        self._sent = 0

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, key: Any, fill: Callable[[Any, int], None]) -> int:
        """The row of a key, which `fill(rows, number)` writes at its first time; -1 where the table is full."""
        found = self._slots.get(key)
        if found is not None:
            return found
        with self._lock:
            if key not in self._slots:
                if len(self._slots) >= len(self.rows):
                    return -1
                fill(self.rows, len(self._slots))
                self._slots[key] = len(self._slots)
            return self._slots[key]

    def on(self, device: Any) -> Any:
        """The rows [S, W] on a device, uploading what was added since the last call."""
        count = len(self._slots)
        if self.rows.device == device:
            return self.rows[:count]
        if self._device_rows is None or len(self._device_rows) < count:
            room = min(len(self.rows), max(_FIRST_ROWS, 1 << (count - 1).bit_length()))
            grown = self.rows.new_empty((room, self.words), device=device)
            if self._sent:
                grown[: self._sent] = self._device_rows[: self._sent]
            self._device_rows = grown
        if count > self._sent:
            self._device_rows[self._sent : count] = self.rows[self._sent : count].to(device)
            self._sent = count
        return self._device_rows[:count]


class DeviceMasks:
    """What the patched classes share: the table, once the engine has asked for a bitmask, and whether it is trusted."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.table: RowTable | None = None
        self.launches = 0
        self._trusted: bool | None = None

    def is_wide(self, bitmask: I32) -> bool:
        """Whether rows of a bitmask [N, words] carry a number at their end."""
        return self.table is not None and bitmask.shape[1] == self.table.words + 1

    def spelled(self, bitmask: I32) -> I32:
        """The rows [N, W] as vLLM knows them, numbers replaced by what they stand for."""
        out = np.ascontiguousarray(bitmask[:, :-1])
        if self.table is not None:
            known = bitmask[:, -1] >= 0
            out[known] = self.table.rows.numpy()[bitmask[known, -1]]
        return out

    def apply(self, logits: Any, bitmask: I32, places: npt.NDArray[np.int64], stock: Callable[[I32], None]) -> None:
        """Masks logits [M, V] in place: row n of a wide bitmask goes to the logits row places[n], -1 to none.

        `stock(rows)` is vLLM's own way, for what this one cannot do.
        """
        free = bitmask[:, -1] < 0
        table = self.table
        plain = bool(np.all(bitmask[free, :-1] == -1))
        if table is None or not plain or self._trusted is False or 32 * table.words < logits.shape[1]:
            stock(self.spelled(bitmask))
            return
        kept = places >= 0
        numbers = np.stack([bitmask[kept, -1], places[kept]]).astype(np.int32)
        if self._trusted is None and np.any(numbers[0] >= 0):
            self._trusted = self._agrees(logits, numbers, lambda: stock(self.spelled(bitmask)))
            return
        self._launch(logits, numbers)

    def _launch(self, logits: Any, numbers: I32) -> None:
        import torch
        from backfill_kernels.automaton_mask import automaton_mask

        if self.table is None or not numbers.shape[1] or not len(self.table):
            return
        names = torch.from_numpy(numbers)
        if logits.is_cuda:
            names = names.pin_memory().to(logits.device, non_blocking=True)
        automaton_mask(logits, self.table.on(logits.device), names[0], names[1])
        self.launches += 1

    def _agrees(self, logits: Any, numbers: I32, stock: Callable[[], None]) -> bool:
        """Masks by vLLM's own way, and says whether a launch on a copy gave the same bits."""
        ours = logits.clone()
        stock()
        try:
            self._launch(ours, numbers)
            same = bool((ours.nan_to_num(nan=0.0) == logits.nan_to_num(nan=0.0)).all())
        except Exception as error:  # whatever a compiler or driver raises, vLLM's own way still works
            _log.warning("token masks stay on the host: %s", error)
            return False
        if not same:
            _log.warning("token masks stay on the host: the kernel's result is not vLLM's")
        return same


MASKS = DeviceMasks()
"""Those of this process."""


def install(backend: type[Any], grammar: type[Any], masks: DeviceMasks) -> None:
    """Makes vLLM's outlines classes, whose masks are remembered already, write numbers where a device can take them."""
    stock_allocate, remembered_fill = backend.allocate_token_bitmask, grammar.fill_bitmask

    def allocate_token_bitmask(self: Any, max_num_seqs: int) -> Any:
        import torch

        bitmask = stock_allocate(self, max_num_seqs)
        if not is_possible(self.vllm_config) or not patch_workers(masks):
            return bitmask
        words = bitmask.shape[1]
        masks.table = RowTable(words, masks.max_bytes)
        return torch.full((len(bitmask), words + 1), -1, dtype=torch.int32, pin_memory=bitmask.is_pinned())

    def fill_bitmask(self: Any, bitmask: Any, idx: int) -> None:
        """Row `idx` of a wide bitmask becomes a number, or a row with -1 behind it."""
        table, number = masks.table, getattr(self, "memo_number", None)
        if table is None or bitmask.shape[1] != table.words + 1:
            remembered_fill(self, bitmask, idx)
            return
        slot = -1
        if number is not None:
            slot = table.slot((number, self.guide.get_state()), lambda rows, at: remembered_fill(self, rows, at))
        if slot < 0:
            remembered_fill(self, bitmask[idx : idx + 1, :-1], 0)
        last = bitmask.data_ptr() + ((idx + 1) * bitmask.stride(0) - 1) * bitmask.itemsize
        ctypes.c_int32.from_address(last).value = slot

    backend.allocate_token_bitmask, grammar.fill_bitmask = allocate_token_bitmask, fill_bitmask


def is_possible(vllm_config: Any) -> bool:
    """Whether scheduler and worker of this engine share a process, and its device is one to do it on."""
    wanted = os.environ.get(VARIABLE, "auto")
    parallel = getattr(vllm_config, "parallel_config", None)
    if wanted == "0" or parallel is None:
        return False
    together = parallel.world_size == 1 and parallel.distributed_executor_backend in (None, "uni")
    return together and (wanted == "1" or vllm_config.device_config.device_type == "cuda")


def patch_workers(masks: DeviceMasks) -> bool:
    """Puts our way in front of vLLM's in those of its model runners that this process has loaded; False for none."""
    old, new = (sys.modules.get(name) for name in _WORKERS)
    if old is not None and not hasattr(old.apply_grammar_bitmask, "stock"):
        old.apply_grammar_bitmask = first_runner(old.apply_grammar_bitmask, masks)  # type: ignore[attr-defined]
    if new is not None and not hasattr(new.StructuredOutputsWorker.apply_grammar_bitmask, "stock"):
        worker = new.StructuredOutputsWorker
        worker.apply_grammar_bitmask = second_runner(worker.apply_grammar_bitmask, masks)
    return old is not None or new is not None


def first_runner(stock: Callable[..., None], masks: DeviceMasks) -> Callable[..., None]:
    """`apply_grammar_bitmask` of the first model runner, with our way in front."""

    def apply_grammar_bitmask(scheduled: Any, grammar: Any, batch: Any, logits: Any) -> None:
        bitmask = grammar.grammar_bitmask
        if not masks.is_wide(bitmask):
            stock(scheduled, grammar, batch, logits)
            return
        drafts = scheduled.scheduled_spec_decode_tokens
        first: dict[str, int] = {}
        n_logits = 0
        for name in batch.req_ids:
            first[name] = n_logits
            n_logits += 1 + len(drafts.get(name, ()))
        places = [
            first[name] + i if name in first else -1
            for name in grammar.structured_output_request_ids
            for i in range(1 + len(drafts.get(name, ())))
        ]
        rows = bitmask[: len(places)]
        masks.apply(
            logits,
            rows,
            np.array(places, np.int64),
            lambda spelled: stock(scheduled, replace(grammar, grammar_bitmask=spelled), batch, logits),
        )

    apply_grammar_bitmask.stock = stock  # type: ignore[attr-defined]
    return apply_grammar_bitmask


def second_runner(stock: Callable[..., None], masks: DeviceMasks) -> Callable[..., None]:
    """`StructuredOutputsWorker.apply_grammar_bitmask` of the second model runner, with our way in front.

    With drafts the places of logits may be known on the device alone: then rows are spelled out for vLLM's own way.
    """

    def apply_grammar_bitmask(self: Any, logits: Any, batch: Any, names: list[str], bitmask: I32) -> None:
        def own_way(rows: I32) -> None:
            stock(self, logits, batch, names, rows)

        if not masks.is_wide(bitmask):
            own_way(bitmask)
            return
        if batch.num_draft_tokens_per_req is not None:
            own_way(masks.spelled(bitmask))
            return
        ends = batch.cu_num_logits_np
        numbers = {name: n for n, name in enumerate(batch.req_ids)}
        places = [p for name in names for p in range(int(ends[numbers[name]]), int(ends[numbers[name] + 1]))]
        masks.apply(logits, bitmask[: len(places)], np.array(places, np.int64), own_way)

    apply_grammar_bitmask.stock = stock  # type: ignore[attr-defined]
    return apply_grammar_bitmask
