"""The remembered masks are those of outlines, bit for bit, on every state that random walks reach."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import pytest

from backfill.engines.outlines_memo import BYTES_VARIABLE, MaskMemo, QuietGuide, register, remember
from backfill.schema import WIRE_SCHEMA

oc = pytest.importorskip("outlines_core")
torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

TEXT = [
    '{"c":"The wall fell over at 12 past 3.","x":3,"r":["concept:the_wall"]}',
    'Ünïcode für alle 日本語 \\ "quoted"',
]
PATTERNS = {
    "object": r'\{"c":"[A-Z][^"\\\x00-\x1F]{0,30}[.!?]","x":(0|1|2|12)\}',
    "words": r"([a-z]{1,6} ){1,4}[a-z]+\.",
    "tail": r'("([^"\\]|\\["\\/])*")?[0-9]{3}',
}


def byte_level(size: int, *, cased: bool = True) -> dict[bytes, list[int]]:
    """A byte-level BPE of ours, trained on a few lines; several ids may stand for one text."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    model.train_from_iterator([text if cased else text.lower() for text in TEXT * 3], trainer)
    decode = {char: byte for byte, char in byte_chars().items()}
    found: dict[bytes, list[int]] = {}
    for token, number in model.get_vocab().items():
        found.setdefault(bytes(decode[char] for char in token), []).append(number)
    return found


def byte_chars() -> dict[int, str]:
    """GPT-2's printable characters for bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def characters() -> dict[bytes, list[int]]:
    """A vocabulary of single characters, each twice."""
    chars = sorted(set("".join(TEXT)) | {chr(c) for c in range(32, 127)})
    return {char.encode(): [2 * i, 2 * i + 1] for i, char in enumerate(chars)}


def unigram() -> dict[bytes, list[int]]:
    """The pieces of a unigram model of ours."""
    model = tokenizers.Tokenizer(tokenizers.models.Unigram())
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=160, initial_alphabet=[chr(c) for c in range(32, 127)], show_progress=False
    )
    model.train_from_iterator(TEXT * 5, trainer)
    return {token.encode(): [number] for token, number in model.get_vocab().items() if token}


VOCABULARIES: dict[str, Callable[[], dict[bytes, list[int]]]] = {
    "bytes-257": lambda: byte_level(257),
    "bytes-330": lambda: byte_level(330, cased=False),
    "characters": characters,
    "unigram": unigram,
}


class Grammar:
    """As vLLM's: a guide, and the mask of its state."""

    def __init__(self, guide: Any) -> None:
        self.guide = guide

    def fill_bitmask(self, bitmask: Any, idx: int) -> None:
        mask = bitmask[idx]
        self.guide.write_mask_into(mask.data_ptr(), mask.numel(), mask.element_size())


def classes(vocabulary: dict[bytes, list[int]]) -> tuple[type[Any], type[Any]]:
    """A backend and a grammar class of their own, with vLLM's names, so that patching touches nothing else."""

    class OwnGrammar(Grammar):
        pass

    class Backend:
        def __init__(self) -> None:
            self.indexes: dict[str, Any] = {}
            top = max(max(ids) for ids in vocabulary.values())
            self.words = (top + 2 + 40 + 31) // 32  # some ids beyond the vocabulary, as models pad theirs
            self.inner = oc.Vocabulary(top + 1, vocabulary)

        def _compile_index(self, regex: str) -> Any:
            if regex not in self.indexes:
                self.indexes[regex] = oc.Index(regex, self.inner)
            return self.indexes[regex]

        def compile_grammar(self, regex: str) -> OwnGrammar:
            return OwnGrammar(oc.Guide(self._compile_index(regex)))

    return Backend, OwnGrammar


def walk(grammar: Any, dice: random.Random, words: int, stock: Callable[[Any, Any, int], None]) -> int:
    """Steps until the automaton ends; every mask is compared with the stock one, each over rows full of noise."""
    for step in range(60):
        ours, theirs = (torch.randint(-(2**31), 2**31 - 1, (3, words), dtype=torch.int32) for _ in range(2))
        outside = ours[[0, 2]].clone()
        grammar.fill_bitmask(ours, 1)
        stock(grammar, theirs, 1)
        assert torch.equal(ours[1], theirs[1])
        assert torch.equal(ours[[0, 2]], outside)
        allowed = grammar.guide.get_tokens()
        if grammar.guide.is_finished() or not allowed:
            return step
        grammar.guide.advance(dice.choice(allowed))
    return 60


@pytest.mark.parametrize("name", VOCABULARIES)
def test_masks_are_those_of_outlines(name: str) -> None:
    backend_class, grammar_class = classes(VOCABULARIES[name]())
    stock, memo = grammar_class.fill_bitmask, MaskMemo()
    remember(backend_class, grammar_class, memo)
    backend, dice, steps = backend_class(), random.Random(7), 0
    for _ in range(25):
        for pattern in PATTERNS.values():
            steps += 1 + walk(backend.compile_grammar(pattern), dice, backend.words, stock)
    assert memo.misses == len(memo) < steps / 2  # each state once; the rest were copied
    assert memo.n_bytes == len(memo) * backend.words * 4


def test_moving_on_lists_nothing_unless_asked_and_ends_in_the_same_state() -> None:
    inner = oc.Vocabulary(200, {b"a": [1], b"b": [2], b"c": [3]})
    plain, quiet = oc.Guide(oc.Index("[ab]+c", inner)), QuietGuide(oc.Guide(oc.Index("[ab]+c", inner)))
    for token in (1, 2):
        assert plain.advance(token) is not None
        assert quiet.advance(token) is None
        assert (quiet.get_state(), quiet.get_tokens()) == (plain.get_state(), plain.get_tokens())
    assert quiet.advance(3, return_tokens=True) == plain.advance(3)
    assert quiet.is_finished()
    with pytest.raises(ValueError, match="No next state"):
        quiet.advance(1)
    quiet.reset()
    assert not quiet.is_finished()


def test_equal_states_of_two_automata_do_not_mix() -> None:
    backend_class, grammar_class = classes(characters())
    memo = MaskMemo()
    remember(backend_class, grammar_class, memo)
    backend = backend_class()
    rows = []
    for pattern in ("[ab]+x", "[cd]+x"):
        row = torch.zeros((1, backend.words), dtype=torch.int32)
        grammar = backend.compile_grammar(pattern)
        grammar.fill_bitmask(row, 0)
        rows.append((grammar.guide.get_state(), row))
    assert rows[0][0] == rows[1][0]
    assert not torch.equal(rows[0][1], rows[1][1])
    narrow = torch.zeros((1, backend.words - 1), dtype=torch.int32)
    backend.compile_grammar("[ab]+x").fill_bitmask(narrow, 0)
    assert torch.equal(narrow[0], rows[0][1][0, :-1])


def test_rolling_back_gives_the_mask_of_the_state_that_was() -> None:
    backend_class, grammar_class = classes(characters())
    stock = grammar_class.fill_bitmask
    remember(backend_class, grammar_class, MaskMemo())
    backend = backend_class()
    grammar = backend.compile_grammar("[ab]{2}[cd]{2}")
    grammar.guide = oc.Guide(backend.indexes["[ab]{2}[cd]{2}"], max_rollback=2)
    for move in (1, 1, -1, 1, 1, -2, 1):
        if move > 0:
            grammar.guide.advance(grammar.guide.get_tokens()[0])
        else:
            grammar.guide.rollback_state(-move)
        ours, theirs = (torch.zeros((1, backend.words), dtype=torch.int32) for _ in range(2))
        grammar.fill_bitmask(ours, 0)
        stock(grammar, theirs, 0)
        assert torch.equal(ours, theirs)


def test_memory_is_bounded_and_the_longest_unused_goes_first() -> None:
    memo = MaskMemo(30)
    for state in range(3):
        memo.put((1, state, 1), bytes(10))
    assert memo.get((1, 0, 1)) == bytes(10)
    memo.put((1, 3, 1), bytes(10))
    assert (memo.n_bytes, len(memo)) == (30, 3)
    assert memo.get((1, 1, 1)) is None
    assert memo.get((1, 0, 1)) is not None
    memo.put((1, 9, 9), bytes(31))
    assert (memo.n_bytes, memo.get((1, 9, 9))) == (30, None)


def test_masks_stay_right_where_nothing_fits() -> None:
    backend_class, grammar_class = classes(characters())
    stock, memo = grammar_class.fill_bitmask, MaskMemo(1)
    remember(backend_class, grammar_class, memo)
    backend = backend_class()
    walk(backend.compile_grammar(PATTERNS["words"]), random.Random(1), backend.words, stock)
    assert len(memo) == memo.n_bytes == 0


def test_threads_may_share_it() -> None:
    memo = MaskMemo(500)
    wrong: list[int] = []

    def use(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(4000):
            state = dice.randrange(90)
            row = memo.get((1, state, 1))
            if row is None:
                memo.put((1, state, 1), bytes([state]) * 10)
            elif row != bytes([state]) * 10:
                wrong.append(state)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert (memo.n_bytes, len(memo)) == (500, 50)


def test_a_grammar_of_another_origin_and_a_strange_bitmask_are_filled_as_before() -> None:
    backend_class, grammar_class = classes(characters())
    memo = MaskMemo()
    remember(backend_class, grammar_class, memo)
    backend = backend_class()
    foreign = grammar_class(oc.Guide(oc.Index("[ab]+", backend.inner)))
    foreign.fill_bitmask(torch.zeros((1, backend.words), dtype=torch.int32), 0)
    grammar = backend.compile_grammar("[ab]+")
    wide = torch.zeros((2, 2 * backend.words), dtype=torch.int32)[:, : backend.words]
    plain = torch.zeros((2, backend.words), dtype=torch.int32)
    grammar.fill_bitmask(wide, 1)
    assert len(memo) == 0
    grammar.fill_bitmask(plain, 1)
    assert len(memo) == 1
    assert torch.equal(wide, plain)


def test_an_index_object_keeps_its_number_and_the_oldest_is_let_go() -> None:
    memo = MaskMemo()
    objects = [SimpleNamespace() for _ in range(130)]
    numbers = [memo.number(each) for each in objects]
    assert numbers == list(range(1, 131))
    assert memo.number(objects[-1]) == 130
    assert memo.number(objects[0]) == 131


def test_it_is_an_entry_point_of_vllm() -> None:
    (found,) = [e for e in entry_points(group="vllm.general_plugins") if e.name == "backfill_outlines_memo"]
    assert found.load() is register


def test_zero_bytes_or_a_value_that_is_no_number_leave_outlines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", "much"):
        monkeypatch.setenv(BYTES_VARIABLE, value)
        assert register() is None


@pytest.mark.slow
def test_masks_of_a_real_tokenizer_and_our_own_schema_are_those_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vllm")
    from transformers import AutoTokenizer
    from vllm.v1.structured_output import backend_outlines
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    from backfill.weights import smollm2_dir

    monkeypatch.setenv("VLLM_REGEX_COMPILATION_TIMEOUT_S", "300")
    grammar_class, backend_class = backend_outlines.OutlinesGrammar, backend_outlines.OutlinesBackend
    for owner, name in ((grammar_class, "fill_bitmask"), (backend_class, "_compile_index")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(backend_class, "compile_grammar", backend_class.compile_grammar)
    stock, memo = grammar_class.fill_bitmask, MaskMemo()
    remember(backend_class, grammar_class, memo)
    config = SimpleNamespace(speculative_config=None)
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir())
    backend = backend_class(config, tokenizer=tokenizer, vocab_size=len(tokenizer))
    dice, steps = random.Random(3), 0
    for _ in range(12):
        grammar = backend.compile_grammar(StructuredOutputOptions.JSON, WIRE_SCHEMA)
        steps += 1 + walk(grammar, dice, (len(tokenizer) + 31) // 32, stock)
    assert memo.misses == len(memo) < steps
