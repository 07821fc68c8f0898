"""Opening: a bundle in a new process, and the cold `backfill query` from start to printed result.

Each sample is a new process, files in the system's cache, modules compiled as an installation has them. "Open" is
`Bundle.open`; "ours" is all of a first search but the import of onnxruntime and the loading of the encoder, and of it
the import of numpy is told apart; "cold" is the whole command by the shell's clock. Memory is resident after 20
searches, the encoder not loaded (query vectors are given). CPU seconds beside wall seconds, because
machines are shared. Goals at 100,000 exchanges: open below 100 ms, below 250 MB, cold below 1.0 s of which ours below
150 ms.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from typing import Any

from bench import synthetic
from bench.harness import Result

PROBE = """
import json, sys, time
began, cpu = time.perf_counter(), time.process_time()
import numpy as np
numpy_ms = (time.perf_counter() - began) * 1e3
from backfill import Bundle
opened = time.perf_counter()
bundle = Bundle.open(sys.argv[1])
open_ms = (time.perf_counter() - opened) * 1e3
class Given:
    dim = 384
    def encode(self, texts, kind):
        # Not np.random: its import would be ours.
        row = np.sin(np.arange(1, 385) * (1 + len(texts[0])))[None]
        return (row / np.linalg.norm(row)).astype("<f2")
bundle.once("encoder", lambda: (Given(), ""))
bundle.once("probe", lambda: 1.0)
texts = sys.argv[2:]
bundle.search(texts[0])
first = time.perf_counter() - began, time.process_time() - cpu
for text in texts[1:]:
    bundle.search(text)
status = open("/proc/self/status").read() if sys.platform == "linux" else ""
rss = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")]
print(json.dumps([open_ms, first[0] * 1e3, first[1] * 1e3, numpy_ms, *rss]))
"""
TIMED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([(time.perf_counter() - began) * 1e3, (spent.ru_utime + spent.ru_stime) * 1e3]))
"""


def run(quick: bool) -> Result:
    """Measures ms; see the module."""
    n = 10_000 if quick else 100_000
    folder = str(synthetic.bundle(n))
    synthetic.encoder()
    texts = [query.text for query in synthetic.queries(n, 20)]
    runs = 3 if quick else 7
    command = [sys.executable, "-m", "backfill.cli", "query", folder, texts[0], "--json"]
    # The first of each compiles, and is left out.
    probes = [_python(PROBE, folder, *texts) for _ in range(runs + 1)][1:]
    colds = [_python(TIMED, *command) for _ in range(runs + 1)][1:]
    open_ms, ours_ms, ours_cpu, numpy_ms, rss = (statistics.median(column) for column in zip(*probes, strict=True))
    cold_ms, cold_cpu = (statistics.median(column) for column in zip(*colds, strict=True))
    print(f"  open {open_ms:.1f} ms; ours from import to first result {ours_ms:.0f} ms ({ours_cpu:.0f} CPU ms), "
          f"of which numpy {numpy_ms:.0f} ms")  # fmt: skip
    print(f"  cold command {cold_ms:.0f} ms ({cold_cpu:.0f} CPU ms); {rss:.0f} MB resident after 20 searches")
    met = open_ms < 100 and rss < 250 and cold_ms < 1000 and ours_ms < 150
    return Result(
        name="open",
        value=open_ms,
        unit="ms",
        peers={"ours to first result": ours_ms, "cold command": cold_ms},
        limit="one stat a file",
        ratio=open_ms / 100,
        goal="open < 100 ms, < 250 MB, cold < 1000 ms of which ours < 150",
        met=met,
        notes=f"{n:,} exchanges; {rss:.0f} MB resident; importing numpy {numpy_ms:.0f} ms; CPU ms: ours "
        f"{ours_cpu:.0f}, cold {cold_cpu:.0f}; best of {runs}: open {min(p[0] for p in probes):.1f}, ours "
        f"{min(p[1] for p in probes):.0f}, cold {min(c[0] for c in colds):.0f}",
    )


def _python(code: str, *arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=_environment()
    )
    return json.loads(done.stdout)


def _environment() -> dict[str, str]:
    """Where modules are compiled once, whatever this environment says: else each process would compile all of them."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(synthetic.CACHE / "bytecode")}
