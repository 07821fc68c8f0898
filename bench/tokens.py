"""Decode tokens an exchange: the compact wire form against the public one, of the same objects.

Both forms say the same of the same exchanges and are counted with SmolLM2's tokenizer: the public form is what a
model would write under the public names, without what never comes from a model (ids, files, tier). Pointers count as
wire does it: the context as a candidate's number. A third form, free text, writes the context out under a short key.
Goal: at most 0.6 of the public form.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from backfill.config import ScanConfig
from backfill.extractive import candidates, extract
from backfill.types import Exchange, PalaceObject
from backfill.weights import smollm2_dir
from bench.harness import Result, Spread

GOAL = 0.6


def run(quick: bool) -> Result:
    """Counts tokens; see the module."""
    counts = counted(sampled()[: 20 if quick else None])
    means = {name: statistics.fmean(values) for name, values in counts.items()}
    for name, values in counts.items():
        print(f"  {name:<34} {means[name]:12.2f} a mean, {statistics.median(values):.0f} a median")
    ratio = means["wire"] / means["public"]
    return Result(
        name="tokens",
        value=means["wire"],
        unit="tokens an exchange",
        peers={name: mean for name, mean in means.items() if name != "wire"},
        limit="the words themselves",
        ratio=ratio,
        goal=f"<= {GOAL:g} of the public form",
        met=ratio <= GOAL,
        spread={name: Spread.of(values) for name, values in counts.items()},
        notes=f"{len(counts['wire'])} exchanges of the samples, extractive objects, SmolLM2's tokenizer",
    )


def sampled() -> list[Exchange]:
    """The exchanges of the samples that an engine is asked about."""
    from bench.distill import sample_rows

    return [row for row in sample_rows(ScanConfig()) if row.tokens_est >= 12]


def counted(rows: Sequence[Exchange]) -> dict[str, list[float]]:
    """Tokens of each form of each row's object, the end mark included."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(smollm2_dir() / "tokenizer.json"))
    counts: dict[str, list[float]] = {"wire": [], "public": [], "free text": []}
    for row in rows:
        made = extract(row, generation=0, fingerprint="f", min_tokens=12)
        texts = [candidate.text for candidate in candidates(row)]
        number = texts.index(made.specific_context) + 1 if made.specific_context in texts else 0
        for name, form in forms(made, number).items():
            text = json.dumps(form, ensure_ascii=False, separators=(",", ":"))
            counts[name].append(len(tokenizer.encode(text, add_special_tokens=False).ids) + 1)  # the end mark
    return counts


def forms(made: PalaceObject, number: int) -> dict[str, dict[str, Any]]:
    """One object as a model would write it: wire, public, and wire with the context as text."""
    rooms = [f"{room.room_type}:{room.room_key}" for room in made.room_assignments]
    public = {
        "exchange_core": made.exchange_core,
        "specific_context": made.specific_context,
        "room_assignments": [
            {
                "room_type": room.room_type,
                "room_key": room.room_key,
                "room_label": room.room_label,
                "relevance": round(room.relevance, 2),
            }
            for room in made.room_assignments
        ],
    }
    wire = {"c": made.exchange_core, "x": number, "r": rooms}
    return {"wire": wire, "public": public, "free text": {**wire, "x": made.specific_context}}
