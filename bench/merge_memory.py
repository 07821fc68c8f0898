"""What a merge takes in memory, up to a million exchanges: lines through what was measured, and five million by them.

    python -m bench.merge_memory --rows 100000 300000 --overlap 10000 100000 --month 10000 50000      # by hand, minutes
    python -m bench.merge_memory --overlap 1000000 --prepare      # makes the two bundles; without it, merges them

Memory grows with all rows (their keys), and with the rows of the greatest segment (some numbers for each):

* `--rows N`: two bundles of disjoint years with N exchanges together, every segment taken over whole. The time of the
  merge stands beside `cp` and fsync of the same bytes.
* `--overlap N`: two bundles with N exchanges together, of which a tenth is in both, over the same 24 months: every
  segment is composed from the rows of both.
* `--month N`: two bundles of one month with N exchanges together, whose segment is composed.

Bundles are copies of smaller ones under other ids and sessions, so that a million take minutes; where segments are
taken over their BM25 files are filler of the right size, which a merge that composes does not read. Peak is the
greatest anonymous memory (RssAnon, looked at every 20 ms) of a process that does nothing else; what is mapped from
files beside it can be dropped at will, and is printed as `resident`. `--folder` says where bundles lie: about 6 KB an
exchange, and as much again for the result.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from backfill.arrays import open_arrays, write_arrays
from backfill.bundle import Bundle, Segment
from backfill.bundle_writer import BundleWriter
from backfill.pieces import ids_of
from backfill.trust import record_segments, segment_digest
from bench.merge import copy_and_sync, merged_s, part, write_union
from bench.synthetic import CACHE, FIRST_MONTH_US, Corpus

BASE = 10_000
FIVE_MILLION, MONTHS = 5_000_000, 24
_LOOK_EVERY_S = 0.02


def multiplied(source: Path, copies: int, out: Path) -> None:
    """Writes `copies` times the rows of a bundle, each copy under ids and sessions of its own."""
    manifest = json.loads((source / "manifest.json").read_bytes())
    with BundleWriter(out) as writer:
        for segment in Bundle.open(source).segments:
            before = len(writer.files)
            for role, entry in segment.files.items():
                path = source / entry.path
                name, folder = path.stem.rsplit("-", 1)[0], str(Path(entry.path).parent)
                writer.add(folder, name, path.suffix, role, partial(_write_copies, segment, role, path, copies))
            record_segments([segment_digest({f["role"]: f["sha256"] for f in writer.files[before:]})])
        for entry in manifest["files"]:
            if not entry["path"].startswith("seg/"):
                path = source / entry["path"]
                if entry["role"] == "encoder":
                    writer.add_copy(path, entry["path"], "encoder")
                else:
                    name = path.stem.rsplit("-", 1)[0]
                    writer.add("", name, path.suffix, entry["role"], partial(_write_copies, None, "", path, 1))
        del manifest["files"], manifest["format"]
        counts = {name: n * copies for name, n in manifest["counts"].items()}
        writer.commit({**manifest, "counts": counts}, {"kind": "synthetic"})


def _write_copies(segment: Segment | None, role: str, path: Path, copies: int, to: Path) -> int:
    if path.suffix == ".parquet":
        return _write_rows(role, path, copies, to)
    if role in ("docs", "sums"):
        write_arrays(to, _arrays(role, dict(open_arrays(path)), copies))
    else:
        data = path.read_bytes()
        with to.open("wb") as file:
            for _ in range(copies):
                file.write(data)
    return segment.files[role].rows * copies if segment is not None else 0


def _write_rows(table: str, path: Path, copies: int, to: Path) -> int:
    data = pq.read_table(path)
    if copies > 1 and len(data):
        data = pa.concat_tables([_renamed(data, i) for i in range(copies)])
    pq.write_table(data, to, compression="zstd", row_group_size=256 if table == "exchanges" else 4096)
    return len(data)


def _renamed(data: pa.Table, i: int) -> pa.Table:
    """The rows under other exchange ids and session names; the 0th copy keeps its own."""
    at = data.schema.get_field_index("exchange_id")
    column = data.column(at).combine_chunks()
    ids = ids_of(column).view("u1").reshape(-1, 16).copy()
    ids[:, 4:8] ^= np.frombuffer(i.to_bytes(4, "little"), "u1")
    fresh = pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(ids.tobytes())])
    data = data.set_column(at, data.schema.field(at), fresh)
    at = data.schema.get_field_index("session_id")
    if at >= 0:
        names = pa.array([f"{name}-{i}" for name in data.column(at).to_pylist()], data.schema.field(at).type)
        data = data.set_column(at, data.schema.field(at), names)
    return data


def _arrays(role: str, arrays: dict[str, Any], copies: int) -> dict[str, Any]:
    """Positions move on by the rows before them; keys of texts differ from copy to copy."""
    out = {}
    n = len(arrays["exchange_row"]) if role == "docs" else 0
    for name, values in arrays.items():
        if name in ("exchange_row", "object_row", "occ_row"):
            out[name] = np.concatenate([values + i * n for i in range(copies)]).astype(values.dtype)
        elif name == "occ_indptr":
            out[name] = np.append(0, np.cumsum(np.tile(np.diff(values), copies))).astype(values.dtype)
        elif name.startswith("text-") and len(values):
            out[name] = np.concatenate([values ^ np.uint64(i) for i in range(copies)])
        elif name == "session":
            out[name] = np.tile(values, copies)
        else:
            out[name] = np.array(values)
    return out


def one_month(n: int, out: Path) -> list[Path]:
    """Two bundles of n / 2 exchanges each, every one of the same month."""
    base = CACHE / f"month-v1-{BASE}"
    paths = []
    for name in ("a", "b"):
        if not (base / name / "manifest.json").is_file():
            _write_month(base)
        paths.append(out / name)
        multiplied(base / name, n // BASE, paths[-1])
    return paths


def _write_month(base: Path) -> None:
    halves: list[list[Any]] = [[], []]
    for number, (rows, places, objects, vectors) in enumerate(Corpus(BASE).sessions()):
        same = [replace(p, started_at=FIRST_MONTH_US + k, ended_at=FIRST_MONTH_US + k) for k, p in enumerate(places)]
        halves[number % 2].append((rows, same, objects, vectors))
    for name, half in zip(("a", "b"), halves, strict=True):
        write_union(half, base / name)


def _pair(kinds: Sequence[str], n: int, out: Path) -> list[Path]:
    paths = []
    for kind in kinds:
        paths.append(out / kind)
        multiplied(part(BASE, kind), n // BASE, paths[-1])
    return paths


CASES: dict[str, Callable[[int, Path], Sequence[Path]]] = {
    "rows": partial(_pair, ("early", "late")),
    "overlap": partial(_pair, ("even", "odd")),
    "month": one_month,
}


def measured(name: str, n: int, cache: Path, prepare: bool) -> dict[str, float]:
    """Makes two bundles, copies them, merges them in a child, and says what both took; with `prepare` makes them alone.

    Bundles that were prepared are used, and deleted after.
    """
    folder = cache / f"memory-{name}-{n}"
    started = time.perf_counter()
    if not (folder / "made").exists():
        shutil.rmtree(folder, ignore_errors=True)
        CASES[name](n, folder)
        (folder / "made").touch()
        print(f"{name:<7} {n:>10,} exchanges: made in {time.perf_counter() - started:.0f} s", flush=True)
    if prepare:
        return {}
    for left in ("copy", "out"):  # of a run that was stopped
        shutil.rmtree(folder / left, ignore_errors=True)
    paths = sorted(path for path in folder.iterdir() if path.is_dir())
    copied_s = 0.0
    for path in paths:
        started = time.perf_counter()
        copy_and_sync(path, folder / "copy")
        copied_s += time.perf_counter() - started
        shutil.rmtree(folder / "copy")
    command = [sys.executable, "-m", "bench.merge_memory", "--child", *map(str, paths), str(folder / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    n_bytes = sum(p.stat().st_size for p in (folder / "out").rglob("*") if p.is_file())
    shutil.rmtree(folder)
    print(
        f"{name:<7} {n:>10,} exchanges: {found['peak_mb']:8,.0f} MB ({found['resident_mb']:,.0f} resident); "
        f"merge {found['seconds']:.1f} s ({found['cpu_s']:.1f} of CPU), cp + fsync {copied_s:.1f} s, result "
        f"{n_bytes / 1e6:,.0f} MB",
        flush=True,
    )
    return found


def child(paths: Sequence[Path]) -> dict[str, float]:
    """Merges the first two into the third and tells memory in MB and seconds."""
    peak_kb, done = 0, threading.Event()

    def look() -> None:
        nonlocal peak_kb
        while not done.wait(_LOOK_EVERY_S):
            status = Path("/proc/self/status").read_text()
            peak_kb = max(peak_kb, int(status.partition("RssAnon:")[2].split()[0]))

    watcher = threading.Thread(target=look)
    watcher.start()
    started = time.process_time()
    seconds = merged_s(list(paths[:2]), paths[2])
    cpu_s = time.process_time() - started
    done.set()
    watcher.join()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": peak_kb / 1024, "resident_mb": resident, "seconds": seconds, "cpu_s": cpu_s}


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in CASES:
        parser.add_argument(f"--{name}", nargs="*", type=int, default=[], metavar="N", help=f"multiples of {BASE:,}")
    parser.add_argument("--prepare", action="store_true", help="make the bundles and keep them for a later merge")
    parser.add_argument("--folder", type=Path, default=CACHE, metavar="DIR")
    parser.add_argument("--child", nargs=3, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["XDG_STATE_HOME"] = str(CACHE / "state")
    if args.child:
        print(json.dumps(child(args.child)))
        return 0
    peaks: dict[str, dict[int, float]] = {}
    for name in CASES:
        found = {n: measured(name, n, args.folder, args.prepare) for n in getattr(args, name)}
        peaks[name] = {n: one["peak_mb"] for n, one in found.items() if one}
    for name in ("rows", "overlap"):
        if len(peaks[name]) > 1:
            slope, base = np.polyfit(list(peaks[name]), list(peaks[name].values()), 1)
            total = base + slope * FIVE_MILLION
            print(f"{name}: {slope * 1e6:,.0f} bytes an exchange; {FIVE_MILLION:,} in {MONTHS} months: {total:,.0f} MB")
    if len(peaks["month"]) > 1:
        slope, _ = np.polyfit(list(peaks["month"]), list(peaks["month"].values()), 1)
        print(f"month: {slope * 1e6:,.0f} bytes an exchange of the greatest segment")
    return 0


if __name__ == "__main__":
    sys.exit(main())
