"""Merging two bundles against `cp` and fsync of the same bytes, and the memory that it takes.

Three cases, apart: disjoint months (every segment is taken over whole), overlapping months (every segment is composed
anew from the rows of both), and a delta of 100 exchanges into the whole (what `add` does after its engine). Bundles are
synthetic, written by the product, kept in bench/.cache. Each merge is timed inside a warm process, as `cp` is; peak
memory is that of a child process which does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.harness import Result, Spread, take_turns
from bench.synthetic import CACHE, FIRST_MONTH_US, Corpus, encoder, settings, union_of

VERSION = 1
# 2024 is a leap year: its last day is in neither half, so that no month is in both.
EARLY_US, LATE_US = 365 * 86_400_000_000, 366 * 86_400_000_000
DELTA_SESSIONS = 5
Choice = Callable[[int, int], bool]  # (session number, its start in microseconds) -> whether it is in
KINDS: dict[str, Choice] = {
    "early": lambda number, at: at < FIRST_MONTH_US + EARLY_US,
    "late": lambda number, at: at >= FIRST_MONTH_US + LATE_US,
    "even": lambda number, at: number % 10 < 5,
    "odd": lambda number, at: number % 10 >= 4,
    "delta": lambda number, at: number < DELTA_SESSIONS,
    "rest": lambda number, at: number >= DELTA_SESSIONS,
}


def run(quick: bool) -> Result:
    """Times the three cases and measures memory: at two sizes and by their line beyond, or at one with `quick`."""
    os.environ["XDG_STATE_HOME"] = str(CACHE / "state")
    n, runs = (2_500, 3) if quick else (100_000, 5)
    print(f"  {n:,} exchanges in two bundles; {runs} runs in turn; seconds")
    spreads = measure(n, runs)
    ratio = spreads["merge, disjoint months"].median / spreads["cp + fsync"].median
    sizes = (n,) if quick else (10_000, n)
    memory = {f"peak_mb_{case}_{size}": peak_mb(case, size) for size in sizes for case in ("disjoint", "overlapping")}
    for name, value in memory.items():
        print(f"  {name:<34} {value:12.1f}")
    beyond: dict[str, float] = {}
    if len(sizes) > 1:
        small, large = (memory[f"peak_mb_overlapping_{size}"] for size in sizes)
        beyond["extrapolated_mb_5m"] = large + (large - small) / (sizes[1] - sizes[0]) * (5_000_000 - sizes[1])
        print(f"  by this line, 5,000,000 exchanges in 24 months: {beyond['extrapolated_mb_5m']:,.0f} MB")
    others = {name: spread.median for name, spread in spreads.items() if name != "merge, disjoint months"}
    return Result(
        name="merge",
        value=spreads["merge, disjoint months"].median,
        unit="s",
        peers={**others, **memory, **beyond},
        limit="cp + fsync of the same bytes",
        ratio=ratio,
        goal="ratio at most 5; 5M exchanges within 4,096 MB",
        met=ratio <= 5 and all(mb <= 4096 for mb in beyond.values()),
        spread=spreads,
        notes=f"{n:,} exchanges, 24 months, two vectors each",
    )


def measure(n: int, runs: int) -> dict[str, Spread]:
    """Seconds of `cp` + fsync and of the three merges, in turn."""
    out = CACHE / "merge-out"
    pairs = {"disjoint months": ("early", "late"), "overlapping months": ("even", "odd")}

    def copy() -> float:
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        for kind in ("early", "late"):
            copy_and_sync(part(n, kind), out / kind)
        return time.perf_counter() - started

    def merged(*kinds: str) -> float:
        shutil.rmtree(out, ignore_errors=True)
        return merged_s([part(n, kind) for kind in kinds], out)

    def grown() -> float:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(part(n, "rest"), out)
        return merged_s([out, part(n, "delta")], out)

    subjects: dict[str, Callable[[], float]] = {"cp + fsync": copy}
    for name, kinds in pairs.items():
        subjects[f"merge, {name}"] = lambda kinds=kinds: merged(*kinds)  # type: ignore[misc]
    subjects["merge, a delta of 100 exchanges"] = grown
    spreads = take_turns(subjects, runs)
    shutil.rmtree(out, ignore_errors=True)
    return spreads


def copy_and_sync(source: Path, target: Path) -> None:
    """What `cp -r` and a sync of every file cost; lineage is left out, as a merge does not copy it."""
    for path in sorted(p for p in source.rglob("*") if p.is_file() and p.parent.name != "lineage"):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)
        descriptor = os.open(to, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def merged_s(paths: list[Path], out: Path) -> float:
    """Seconds of merging bundles into a folder that is not there."""
    from backfill.merge import merge
    from backfill.pipeline import input_of_run

    started = time.perf_counter()
    merge(paths, out, input_of_run)
    return time.perf_counter() - started


def peak_mb(case: str, n: int) -> float:
    """Peak resident memory in MB of a process that merges two bundles of `n` exchanges together."""
    kinds = {"disjoint": ("early", "late"), "overlapping": ("even", "odd")}[case]
    paths = [str(part(n, kind)) for kind in kinds]
    done = subprocess.run(
        [sys.executable, "-m", "bench.merge", "--child", *paths, str(CACHE / "merge-out")],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    shutil.rmtree(CACHE / "merge-out", ignore_errors=True)
    return float(json.loads(done.stdout.splitlines()[-1])["peak_mb"])


def part(n: int, kind: str) -> Path:
    """The bundle of those sessions of the synthetic corpus of `n` exchanges; built in a child where it is missing."""
    folder = CACHE / f"merge-v{VERSION}-{n}" / kind
    if not (folder / "manifest.json").is_file():
        print(f"  building {folder.parent.name}/{kind}", flush=True)
        subprocess.run([sys.executable, "-m", "bench.merge", "--build", str(n), kind, str(folder)], check=True)
    return folder


def build(n: int, kind: str, folder: Path, slice_sessions: int = 5_000) -> None:
    """Writes it slice by slice, so that a million exchanges need the memory of a hundred thousand."""
    from backfill.merge import merge
    from backfill.pipeline import input_of_run

    slices: list[Path] = []
    for number, chunk in enumerate(_slices(n, KINDS[kind], slice_sessions)):
        slices.append(folder.with_name(f"{kind}-slice-{number}"))
        write_union(chunk, slices[-1])
    if len(slices) == 1:
        slices[0].rename(folder)
        return
    merge(slices, folder, input_of_run)
    for path in slices:
        shutil.rmtree(path)


def _slices(n: int, choose: Choice, slice_sessions: int) -> Iterable[list[Any]]:
    chunk: list[Any] = []
    for number, session in enumerate(Corpus(n).sessions()):
        if choose(number, session[1][0].started_at):
            chunk.append(session)
        if len(chunk) == slice_sessions:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def write_union(sessions: list[Any], folder: Path) -> None:
    """Writes the bundle of sessions of a corpus."""
    from backfill.inputs import Input
    from backfill.merge import merge_inputs

    merge_inputs(
        [Input("synthetic", union_of(sessions), settings(), list(encoder().files))], folder, {"kind": "synthetic"}, ""
    )


def main() -> int:
    """`--build N KIND FOLDER`, `--child A B OUT`, or `--memory N...`: peaks at further sizes, by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", nargs=3)
    parser.add_argument("--child", nargs=3, type=Path)
    parser.add_argument("--memory", nargs="+", type=int)
    args = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = str(CACHE / "state")
    if args.build:
        build(int(args.build[0]), args.build[1], Path(args.build[2]))
    if args.child:
        seconds = merged_s(args.child[:2], args.child[2])
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"peak_mb": round(peak, 1), "seconds": round(seconds, 2)}))
    for n in args.memory or ():
        for case in ("disjoint", "overlapping"):
            print(f"{case:<12} {n:>10,} exchanges: {peak_mb(case, n):,.0f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
