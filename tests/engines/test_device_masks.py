"""Numbers in place of masks: what the worker makes of them is what vLLM makes of the masks, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backfill.engines import device_masks
from backfill.engines.device_masks import DeviceMasks, RowTable, first_runner, install, is_possible, second_runner
from backfill.engines.outlines_memo import MaskMemo, remember

oc = pytest.importorskip("outlines_core")
torch = pytest.importorskip("torch")

WORDS, VOCABULARY = 3, 70
PATTERN = "[ab]{1,9}(cd|ef)*g"


@dataclass
class Scheduled:
    scheduled_spec_decode_tokens: dict[str, list[int]]


@dataclass
class GrammarOutput:
    structured_output_request_ids: list[str]
    grammar_bitmask: Any


def masked(logits: Any, rows: np.ndarray, places: list[int]) -> None:
    """vLLM's own way, in plain numpy."""
    for row, place in zip(rows, places, strict=True):
        bits = np.unpackbits(np.ascontiguousarray(row).view(np.uint8), bitorder="little")[: logits.shape[1]]
        if place >= 0:
            logits[place][torch.from_numpy(bits == 0)] = float("-inf")


def engine(monkeypatch: pytest.MonkeyPatch, masks: DeviceMasks) -> tuple[Any, Callable[[], Any]]:
    """A backend and a maker of grammars, patched as vLLM's are."""

    class Grammar:
        def __init__(self, guide: Any) -> None:
            self.guide = guide

        def fill_bitmask(self, bitmask: Any, idx: int) -> None:
            mask = bitmask[idx]
            self.guide.write_mask_into(mask.data_ptr(), mask.numel(), mask.element_size())

    class Backend:
        vllm_config = config()

        def __init__(self) -> None:
            self.index = oc.Index(PATTERN, oc.Vocabulary(VOCABULARY - 1, {bytes([97 + i]): [3 * i] for i in range(7)}))

        def _compile_index(self) -> Any:
            return self.index

        def compile_grammar(self) -> Grammar:
            return Grammar(oc.Guide(self._compile_index()))

        def allocate_token_bitmask(self, n: int) -> Any:
            return torch.full((n, WORDS), -1, dtype=torch.int32)

    monkeypatch.setenv(device_masks.VARIABLE, "1")
    monkeypatch.setattr(device_masks, "patch_workers", lambda masks: True)
    remember(Backend, Grammar, MaskMemo())
    install(Backend, Grammar, masks)
    backend = Backend()
    return backend, backend.compile_grammar


def config(*, world_size: int = 1, executor: str | None = "uni", device: str = "cuda") -> Any:
    return SimpleNamespace(
        parallel_config=SimpleNamespace(world_size=world_size, distributed_executor_backend=executor),
        device_config=SimpleNamespace(device_type=device),
    )


def plain_row(grammar: Any) -> np.ndarray:
    row = torch.zeros((1, WORDS), dtype=torch.int32)
    grammar.guide.write_mask_into(row.data_ptr(), WORDS, 4)
    return row.numpy()[0]


def advance(grammar: Any, dice: random.Random) -> bool:
    allowed = grammar.guide.get_tokens()
    if grammar.guide.is_finished() or not allowed:
        return False
    grammar.guide.advance(dice.choice(allowed))
    return True


@pytest.mark.parametrize("max_bytes", [1 << 20, 4 * WORDS * 2, 0], ids=["room", "two rows", "no room"])
def test_steps_of_a_batch_are_masked_as_vllm_masks_them(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    masks, dice = DeviceMasks(max_bytes), random.Random(3)
    backend, compile_grammar = engine(monkeypatch, masks)
    bitmask = backend.allocate_token_bitmask(8)
    assert bitmask.shape == (8, WORDS + 1)
    own_ways = 0
    for _ in range(30):
        grammars = [compile_grammar() for _ in range(6)]
        for grammar in grammars:
            for _ in range(dice.randrange(6)):
                advance(grammar, dice)
        wanted_rows = []
        for n, grammar in enumerate(grammars):
            grammar.fill_bitmask(bitmask, n)
            wanted_rows.append(plain_row(grammar))
        # What vLLM itself does with rows: one is freed, one is repeated.
        bitmask[6].fill_(-1)
        bitmask[7].copy_(bitmask[2])
        wanted_rows += [np.full(WORDS, -1, np.int32), wanted_rows[2]]
        places = dice.sample(range(10), 8)
        logits = torch.randn(10, VOCABULARY)
        logits[0, 5] = float("nan")
        wanted = logits.clone()
        masked(wanted, np.array(wanted_rows), places)

        def own_way(rows: np.ndarray) -> None:
            nonlocal own_ways
            own_ways += 1
            assert rows.shape == (8, WORDS)
            masked(logits, rows, places)  # noqa: B023 - called before the next round

        masks.apply(logits, bitmask.numpy(), np.array(places), own_way)
        assert torch.equal(logits.view(torch.int32), wanted.view(torch.int32))
    if max_bytes == 1 << 20:
        assert (own_ways, masks.launches) == (1, 30), "the first is compared, all others are launched"
    if max_bytes == 0:
        assert (own_ways, masks.launches) == (30, 0)


def test_a_kernel_that_errs_or_fails_is_never_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import backfill_kernels.automaton_mask as op

    def wrong(logits: Any, *rest: Any) -> None:
        logits[:] = 0.0

    def broken(*rest: Any) -> None:
        raise RuntimeError("no kernel image is available for execution on the device")

    for fault in (wrong, broken):
        masks = DeviceMasks()
        backend, compile_grammar = engine(monkeypatch, masks)
        bitmask = backend.allocate_token_bitmask(1)
        grammar = compile_grammar()
        grammar.fill_bitmask(bitmask, 0)
        monkeypatch.setattr(op, "automaton_mask", fault)
        for _ in range(3):
            logits, wanted = torch.ones(1, VOCABULARY), torch.ones(1, VOCABULARY)
            masked(wanted, plain_row(grammar)[None], [0])
            masks.apply(logits, bitmask.numpy(), np.array([0]), lambda rows, to=logits: masked(to, rows, [0]))
            assert torch.equal(logits, wanted)
        assert masks.launches <= 1
        monkeypatch.undo()


def test_the_first_runner_finds_the_places_with_drafts_and_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = DeviceMasks()
    backend, compile_grammar = engine(monkeypatch, masks)
    bitmask, dice = backend.allocate_token_bitmask(9), random.Random(1)
    grammars = [compile_grammar() for _ in range(5)]
    for n, grammar in enumerate(grammars):
        for _ in range(n):
            advance(grammar, dice)
        grammar.fill_bitmask(bitmask, n)
    # Requests in the order of the batch: p has no grammar, a has two drafts, b none; gone is no longer in the batch.
    scheduled = Scheduled({"a": [4, 4], "p": [7]})
    output = GrammarOutput(["b", "gone", "a"], bitmask[:5].numpy())
    batch = SimpleNamespace(req_ids=["p", "a", "b"])
    rows = np.array([plain_row(grammar) for grammar in grammars])
    places = [5, -1, 2, 3, 4]
    calls: list[int] = []

    def stock(scheduled: Any, output: Any, batch: Any, logits: Any) -> None:
        calls.append(output.grammar_bitmask.shape[1])
        masked(logits, output.grammar_bitmask, places)

    apply = first_runner(stock, masks)
    for _ in range(2):
        logits = torch.randn(6, VOCABULARY)
        wanted = logits.clone()
        masked(wanted, rows, places)
        apply(scheduled, output, batch, logits)
        assert torch.equal(logits, wanted)
    narrow = GrammarOutput(["b", "gone", "a"], rows)
    apply(scheduled, narrow, batch, torch.randn(6, VOCABULARY))
    assert calls == [WORDS, WORDS], "once to compare, once for rows of vLLM's own width"
    assert masks.launches == 2


def test_the_second_runner_finds_the_places_and_leaves_drafts_to_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = DeviceMasks()
    backend, compile_grammar = engine(monkeypatch, masks)
    bitmask = backend.allocate_token_bitmask(2)
    grammars = [compile_grammar() for _ in range(2)]
    advance(grammars[1], random.Random(1))
    for n, grammar in enumerate(grammars):
        grammar.fill_bitmask(bitmask, n)
    rows, calls = np.array([plain_row(grammar) for grammar in grammars]), []

    def stock(self: Any, logits: Any, batch: Any, names: list[str], bitmask: np.ndarray) -> None:
        calls.append(bitmask.shape[1])
        masked(logits, bitmask, [2, 0])

    apply = second_runner(stock, masks)
    for drafts in (None, None, np.array([0, 0, 0])):
        batch = SimpleNamespace(
            num_draft_tokens_per_req=drafts, cu_num_logits_np=np.array([0, 1, 2, 3]), req_ids=["x", "y", "z"]
        )
        logits = torch.randn(3, VOCABULARY)
        wanted = logits.clone()
        masked(wanted, rows, [2, 0])
        apply(None, logits, batch, ["z", "x"], bitmask.numpy())
        assert torch.equal(logits, wanted)
    assert calls == [WORDS, WORDS]
    assert masks.launches == 2


def test_it_needs_one_process_and_a_gpu_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(device_masks.VARIABLE, raising=False)
    assert is_possible(config())
    assert not is_possible(config(device="cpu"))
    assert not is_possible(config(world_size=2, executor="mp"))
    assert not is_possible(config(executor="ray"))
    assert not is_possible(SimpleNamespace())
    monkeypatch.setenv(device_masks.VARIABLE, "1")
    assert is_possible(config(device="cpu"))
    assert not is_possible(config(world_size=2))
    monkeypatch.setenv(device_masks.VARIABLE, "0")
    assert not is_possible(config())


def test_a_table_uploads_what_is_new_and_grows() -> None:
    table = RowTable(2, max_bytes=8 * 700)

    def fill(rows: Any, at: int) -> None:
        rows[at] = torch.tensor([at, -at])

    for upto in (1, 3, 300, 700):
        for key in range(upto):
            assert table.slot(key, fill) == key
        there = table.on(torch.device("meta") if upto == 3 else torch.device("cpu"))
        assert there.shape == (upto, 2)
    assert table.slot("one more", fill) == -1
    assert torch.equal(table.on(torch.device("cpu"))[:, 0], torch.arange(700, dtype=torch.int32))


def real_manager(backend: Any) -> Any:
    """vLLM's manager of structured outputs over a backend, without a model."""
    from vllm.v1.structured_output import StructuredOutputManager

    manager = StructuredOutputManager.__new__(StructuredOutputManager)
    manager.backend, manager.vllm_config, manager.reasoner_cls = backend, backend.vllm_config, None
    manager._grammar_bitmask, manager._full_mask = None, torch.tensor(-1, dtype=torch.int32)
    manager.enable_in_reasoning, manager.fill_bitmask_parallel_threshold = True, 128
    return manager


@pytest.mark.slow
def test_steps_of_vllm_itself_give_the_same_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    from transformers import AutoTokenizer
    from vllm.v1.core.sched.output import GrammarOutput as Output
    from vllm.v1.structured_output.backend_outlines import OutlinesBackend, OutlinesGrammar
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.worker import gpu_model_runner

    from backfill.weights import smollm2_dir

    monkeypatch.setenv(device_masks.VARIABLE, "1")
    monkeypatch.setenv("VLLM_REGEX_COMPILATION_TIMEOUT_S", "300")
    for owner, name in (
        (gpu_model_runner, "apply_grammar_bitmask"),
        (OutlinesGrammar, "fill_bitmask"),
        (OutlinesBackend, "_compile_index"),
        (OutlinesBackend, "compile_grammar"),
        (OutlinesBackend, "allocate_token_bitmask"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    stock, masks = gpu_model_runner.apply_grammar_bitmask, DeviceMasks()
    remember(OutlinesBackend, OutlinesGrammar, MaskMemo())
    install(OutlinesBackend, OutlinesGrammar, masks)
    settings = config(device="cpu")
    settings.speculative_config, settings.num_speculative_tokens = None, 0
    settings.scheduler_config = SimpleNamespace(max_num_seqs=8)
    settings.model_config = SimpleNamespace(is_diffusion=False)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir())
    size = len(tokenizer)
    backend = OutlinesBackend(settings, tokenizer=tokenizer, vocab_size=size)
    manager, dice = real_manager(backend), random.Random(1)
    pattern = r'\{"c":"[a-z ]{1,20}\."\}'
    grammars = {f"r{n}": backend.compile_grammar(StructuredOutputOptions.REGEX, pattern) for n in range(5)}
    requests = {
        name: SimpleNamespace(structured_output_request=SimpleNamespace(grammar=grammar))
        for name, grammar in grammars.items()
    }
    scheduled, steps = Scheduled({}), 0
    while live := [name for name, grammar in grammars.items() if not grammar.is_terminated()]:
        bitmask = manager.grammar_bitmask(requests, live, {})
        plain = torch.full((len(live), (size + 31) // 32), -1, dtype=torch.int32)
        for row, name in zip(plain, live, strict=True):
            grammars[name].guide.write_mask_into(row.data_ptr(), row.numel(), 4)
        logits = torch.randn(1 + len(live), size)
        wanted, batch = logits.clone(), SimpleNamespace(req_ids=["free", *live])
        stock(scheduled, Output(live, plain.numpy()), batch, wanted)
        gpu_model_runner.apply_grammar_bitmask(scheduled, Output(live, bitmask), batch, logits)
        assert torch.equal(logits, wanted)
        steps += 1
        for name in live:
            assert grammars[name].accept_tokens(name, [dice.choice(grammars[name].guide.get_tokens())])
    assert masks.launches == steps > 3
