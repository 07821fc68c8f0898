"""The lines of the benchmark, and the tests that must be green before a figure of theirs means anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# name -> what pytest is given: the same code on inputs whose right result is known.
LINES: dict[str, tuple[str, ...]] = {
    "scan": ("tests/gold", "tests/test_gold.py", "tests/test_scan_processes.py"),
    "distill": ("tests/test_distill.py", "tests/contracts/test_engines.py"),
    "mask": ("tests/engines/test_outlines_memo.py",),
    "tokens": ("tests/test_schema.py",),
    "overhead": ("tests/test_distill.py", "tests/test_prompts.py"),
    "extractive": ("tests/test_extractive.py",),
    "merge": ("tests/test_merge.py",),
    "embed": ("tests/contracts/test_embedders.py", "tests/test_known_vectors.py"),
    "bm25": ("tests/indexes/test_bm25.py", "tests/indexes/test_tokenizer.py"),
    "vectors": ("tests/test_vector_space.py", "tests/indexes/test_vectors.py", "tests/indexes/test_shortlist.py"),
    "query": ("tests/test_query.py", "tests/test_fusion.py"),
    "open": ("tests/test_bundle.py", "tests/test_light_imports.py"),
    "size": ("tests/test_bundle.py", "tests/test_columns.py"),
    "faults": ("tests/fidelity",),
    "quality": ("tests/fidelity/test_handles.py", "tests/test_extractive.py"),
    "neardup": ("tests/test_near_copies.py",),
    "batch": ("tests/test_distill.py", "tests/bench/test_bench_fit.py"),
    "growth": ("tests/bench/test_bench_fit.py",),
}


def green(name: str) -> bool:
    """Runs a line's tests; prints what pytest says where one fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LINES[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"  tests: {(done.stdout.strip().splitlines() or ['pytest said nothing'])[-1]}", flush=True)
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-1000:], file=sys.stderr)
    return done.returncode == 0
