"""What `backfill bench` prints and writes: the JSON record, the table, and which lines of it matter.

Rates are of one engine; `hours_per_million` are GPU-hours where the engine runs on a GPU, else hours of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backfill.gate_sample import Sample
from backfill.throughput.choice import best
from backfill.throughput.measure import Measured

COLUMNS = (
    "settings", "exchanges/s", "±", "tokens/s in", "tokens/s out", "hours/million", "load s", "failed", "invented",
    "mangled", "dropped", "secrets", "density", "verdict",
)  # fmt: skip


def record_of(
    cells: Sequence[Measured], sample: Sample, config_name: str, out: Path, *, finished: bool
) -> dict[str, Any]:
    """The `bench --json` record; its last part is the recommendation, null where nothing was measured."""
    found = best(cells)
    recommended = None
    if found is not None:
        recommended = {"name": found.cell.name, "changes": found.cell.changes, "reason": found.reason,
                       "safe": found.safe}  # fmt: skip
    return {
        "config": config_name,
        "sample_digest": sample.digest.hex(),
        "exchanges": len(sample.rows),
        "windows": len(sample.windows),
        "finished": finished,
        "out": str(out),
        "page": str(out / "bench.html"),
        "cells": [{"name": cell.name, "device": device(cell), "faults_per_100": round(cell.faults, 2), **_rounded(cell)}
                  for cell in cells],
        "recommended": recommended,
    }  # fmt: skip


def device(cell: Measured) -> str:
    """What the cell's engine ran on, as it says itself."""
    return str(cell.runs.get("device", "")) if cell.runs else ""


def rows_of(record: dict[str, Any]) -> list[list[str]]:
    """The table's rows under `COLUMNS`; a failed cell has its reason in the place of the verdict."""
    return [
        [cell["name"], *("" for _ in COLUMNS[2:]), cell["failure"]]
        if cell["failure"]
        else [
            cell["name"], f"{cell['exchanges_s']:.2f}", f"{cell['error']:.0%}", f"{cell['tokens_in_s']:,.0f}",
            f"{cell['tokens_out_s']:,.0f}", f"{cell['hours_per_million']:,.1f}", f"{cell['load_s']:.0f}",
            *(f"{cell[name]:,}" for name in ("schema_failures", "invented", "mangled", "dropped", "secrets")),
            f"{cell['density']:.2f}", cell["verdict"],
        ]
        for cell in record["cells"]
    ]  # fmt: skip


def _rounded(cell: Measured) -> dict[str, Any]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(cell).items()}
