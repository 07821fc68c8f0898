"""Token masks: outlines as it comes, outlines with remembered masks, xgrammar and llguidance, on our own schema.

All four run through vLLM's own backend classes, on the same answers in the shape of the wire schema: per token one mask
is filled and the token accepted, for 64 requests in flight, as the scheduler does it. All take the same answers. Every
turn of remembered masks starts with nothing remembered, so first visits count; a further subject takes more answers, to
show what is left of them in a run. Vocabularies: SmolLM2's (49k) and one of 152k, of SmolLM2's tokens and made-up
joins of them. Value: tokens a second with remembered masks at 152k; goals: 50 times stock outlines at least, and 1.5
times the time of llguidance at most.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from backfill.config import ScanConfig
from backfill.schema import MAX_CANDIDATES, WIRE_SCHEMA
from backfill.weights import smollm2_dir
from bench.harness import Result, cpu_timed, take_turns

GOAL, PEER_GOAL = 50.0, 1.5
IN_FLIGHT = 64
LONG_FACTOR = 8
LARGE = 151_936
_WORD = re.compile(r"[A-Za-z]{2,12}")

Walk = Sequence[int]


def run(quick: bool) -> Result:
    """Measures tokens/s; see the module."""
    os.environ.setdefault("VLLM_REGEX_COMPILATION_TIMEOUT_S", "900")
    n, runs = (64, 1) if quick else (256, 2)
    texts = list(wire_texts(LONG_FACTOR * n))
    spread: dict[str, Any] = {}
    with TemporaryDirectory(prefix="backfill-bench-") as folder:
        for label, directory in (("49k", smollm2_dir()), ("152k", grown_tokenizer(Path(folder), LARGE))):
            spread |= {f"{name} {label}": s for name, s in _of_vocabulary(directory, texts, n, runs).items()}
    values = {name: s.median for name, s in spread.items()}
    ours, stock, peer = (values[f"{name} 152k"] for name in ("remembered", "outlines", "llguidance"))
    slower = max(values[f"llguidance {size}"] / values[f"remembered {size}"] for size in ("49k", "152k"))
    return Result(
        name="mask",
        value=ours,
        unit="tokens/s",
        peers={name: rate for name, rate in values.items() if name != "remembered 152k"},
        limit="copying a row of 19 KB",
        ratio=ours / stock,
        goal=f">= {GOAL:g}x stock outlines, and <= {PEER_GOAL:g}x the time of llguidance",
        met=ours >= GOAL * stock and slower <= PEER_GOAL,
        spread=spread,
        notes=f"{n} answers a turn, {IN_FLIGHT} in flight; {peer / ours:.2f}x the time of llguidance at 152k, "
        f"{slower:.2f}x at worst; us a step of {IN_FLIGHT}: "
        + ", ".join(f"{name} {1e6 * IN_FLIGHT / rate:.0f}" for name, rate in values.items()),
    )


def _of_vocabulary(directory: Path, texts: Sequence[str], n: int, runs: int) -> dict[str, Any]:
    from transformers import AutoTokenizer
    from vllm.v1.structured_output.backend_guidance import GuidanceBackend
    from vllm.v1.structured_output.backend_outlines import OutlinesBackend
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    tokenizer = AutoTokenizer.from_pretrained(directory)
    size = len(tokenizer)
    walks = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in texts]
    config = _vllm_config()
    began = time.perf_counter()
    stock = OutlinesBackend(config, tokenizer=tokenizer, vocab_size=size)
    grammar_of(stock)
    print(f"  outlines compiled for {size:,} tokens in {time.perf_counter() - began:.1f} s")

    def remembered(walks: Sequence[Walk], fills: list[float]) -> float:
        backend, memo = remembering(stock, tokenizer)
        rate = _rate(backend, walks, fills)
        counts[0] = len(memo)
        return rate

    counts = [0]
    xgrammar, guidance = (
        make(config, tokenizer=tokenizer, vocab_size=size) for make in (XgrammarBackend, GuidanceBackend)
    )
    fills: dict[str, list[float]] = defaultdict(list)
    long = f"remembered, {len(walks):,} answers"
    subjects: dict[str, Callable[[], float]] = {
        "outlines": lambda: _rate(stock, walks[:n], fills["outlines"]),
        "remembered": lambda: remembered(walks[:n], fills["remembered"]),
        "xgrammar": lambda: _rate(xgrammar, walks[:n], fills["xgrammar"]),
        "llguidance": lambda: _rate(guidance, walks[:n], fills["llguidance"]),
        long: lambda: remembered(walks, fills[long]),
    }
    found = take_turns(subjects, runs, warmup=0)
    for name, rates in fills.items():
        print(f"  {name:<34} {1e6 / statistics.median(rates):12.2f} us a mask")
    print(f"  {counts[0]} states of {sum(map(len, walks)):,} masks, {counts[0] * (size + 31) // 32 * 4 / 1e6:.1f} MB")
    return found


def remembering(stock: Any, tokenizer: Any) -> tuple[Any, Any]:
    """(backend, memo) with nothing remembered yet: outlines, which shares the compiled automata of `stock`."""
    from vllm.v1.structured_output.backend_outlines import OutlinesBackend, OutlinesGrammar

    from backfill.engines.outlines_memo import MaskMemo, remember

    class Grammar(OutlinesGrammar):  # type: ignore[misc]
        pass

    class Backend(OutlinesBackend):  # type: ignore[misc]
        def compile_grammar(self, *args: Any, **names: Any) -> Any:
            made = super().compile_grammar(*args, **names)
            return Grammar(made.vocab_size, made.eos_token_id, made.guide)

    memo = MaskMemo()
    remember(Backend, Grammar, memo)
    backend = Backend(_vllm_config(), tokenizer=tokenizer, vocab_size=len(tokenizer))
    backend.cache = stock.cache
    return backend, memo


def masks_s(directory: Path) -> Callable[[int], float]:
    """CPU seconds of filling and accepting the masks of so many answers, nothing remembered at first."""
    from transformers import AutoTokenizer
    from vllm.v1.structured_output.backend_outlines import OutlinesBackend

    tokenizer = AutoTokenizer.from_pretrained(directory)
    stock = OutlinesBackend(_vllm_config(), tokenizer=tokenizer, vocab_size=len(tokenizer))
    grammar_of(stock)

    def cost(n: int) -> float:
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in wire_texts(n)]
        walks = [[*one, tokenizer.eos_token_id] for one in ids]
        backend, _ = remembering(stock, tokenizer)
        return cpu_timed(lambda: _rate(backend, walks, []))

    return cost


def grammar_of(backend: Any) -> Any:
    """A grammar of our wire schema."""
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    return backend.compile_grammar(StructuredOutputOptions.JSON, WIRE_SCHEMA)


def _rate(backend: Any, walks: Sequence[Walk], fills: list[float]) -> float:
    """Tokens a second, `IN_FLIGHT` answers at a time; the rate of masks alone is appended to `fills`.

    Raises ValueError on a token that the backend refuses.
    """
    grammar_of(backend)
    bitmask = backend.allocate_token_bitmask(IN_FLIGHT)
    waiting = list(walks)
    masks, spent_s, fill_s = 0, 0.0, 0.0
    running: list[tuple[Any, Iterator[int]]] = []
    while waiting or running:
        while waiting and len(running) < IN_FLIGHT:
            running.append((grammar_of(backend), iter(waiting.pop())))
        tokens = [next(steps) for _, steps in running]
        began = time.perf_counter()
        for i, (grammar, _) in enumerate(running):
            grammar.fill_bitmask(bitmask, i)
        fill_s += time.perf_counter() - began
        accepted = [grammar.accept_tokens("", [token]) for (grammar, _), token in zip(running, tokens, strict=True)]
        spent_s += time.perf_counter() - began
        if not all(accepted):
            raise ValueError(f"{type(backend).__name__} refused a token of an answer that fits the schema")
        masks += len(running)
        running = [(grammar, steps) for grammar, steps in running if not grammar.is_terminated()]
    fills.append(masks / fill_s)
    return masks / spent_s


def wire_texts(n: int) -> Iterator[str]:
    """Answers that fit the wire schema, of the words of the sample transcripts."""
    from bench.distill import sample_rows

    words = _WORD.findall(" ".join(row.agent_text for row in sample_rows(ScanConfig())))
    dice = random.Random(5)
    for _ in range(n):
        core = " ".join(dice.choices(words, k=dice.randint(8, 22)))
        rooms = [
            f"{dice.choice(['file', 'concept', 'workflow'])}:" + "_".join(w.lower() for w in dice.choices(words, k=2))
            for _ in range(dice.randint(1, 3))
        ]
        yield json.dumps({"c": f"{core}.", "x": dice.randint(0, MAX_CANDIDATES), "r": rooms}, separators=(",", ":"))


def grown_tokenizer(folder: Path, size: int) -> Path:
    """SmolLM2's tokenizer with made-up joins of its tokens up to `size`, a directory that transformers reads."""
    tree = json.loads((smollm2_dir() / "tokenizer.json").read_text())
    vocabulary: dict[str, int] = tree["model"]["vocab"]
    words = [token for token in vocabulary if re.fullmatch(r"Ġ?[A-Za-z]{2,9}", token)]
    tails = [token for token in words if not token.startswith("Ġ")]
    dice = random.Random(6)
    while len(vocabulary) < size:
        left, right = dice.choice(words), dice.choice(tails)
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            tree["model"]["merges"].append([left, right])
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    for name in ("tokenizer_config.json", "special_tokens_map.json", "config.json"):
        if (smollm2_dir() / name).is_file():
            (folder / name).write_bytes((smollm2_dir() / name).read_bytes())
    return folder


def _vllm_config() -> Any:
    """What the backends read of vLLM's configuration."""
    return SimpleNamespace(
        speculative_config=None,
        model_config=None,
        structured_outputs_config=SimpleNamespace(
            disable_any_whitespace=False, disable_additional_properties=False, backend="outlines"
        ),
    )
