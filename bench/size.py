"""Bytes on disk of an exchange: a bundle's files against SQLite FTS5 and FAISS flat with the same rows.

Encoder and lineage are left out on our side (they do not grow with the bundle); on the other side stand the SQLite file
of `bench/query.py` (contentless FTS5 and a table of rows) and two flat float16 indexes. Goal: 0.6.
"""

from __future__ import annotations

from collections import defaultdict

from backfill.bundle import Bundle
from bench import synthetic
from bench.harness import Result
from bench.query import database

GOAL = 0.6
# Without what holds verbatim text or its words: the goal is 1,600 bytes with one vector, 800 for each further one.
VERBATIM_ROLES = ("exchanges", "bm25:verbatim")


def bytes_by_role(n: int) -> dict[str, int]:
    """Bytes of the synthetic bundle's files, by what they are."""
    by_role: dict[str, int] = defaultdict(int)
    for entry in Bundle.open(synthetic.bundle(n)).manifest.files:
        if entry.role != "encoder":
            by_role[entry.role] += entry.bytes
    return by_role


def without_verbatim(by_role: dict[str, int], n: int) -> float:
    """Bytes an exchange of all but verbatim text and vectors; a vector comes on top of it."""
    kept = (role for role in by_role if role not in VERBATIM_ROLES and not role.startswith("vectors:"))
    return sum(by_role[role] for role in kept) / n


def run(quick: bool) -> Result:
    """Measures bytes an exchange; see the module."""
    n = 10_000 if quick else 100_000
    by_role = bytes_by_role(n)
    for role, size in sorted(by_role.items(), key=lambda item: -item[1]):
        print(f"  {role:<20} {size / n:10.0f} bytes an exchange")
    value = sum(by_role.values()) / n
    sqlite = database(n).stat().st_size / n
    peer = sqlite + 2 * 2 * synthetic.DIM
    print(f"  SQLite {sqlite:.0f}, FAISS flat {2 * 2 * synthetic.DIM}")
    one_vector = without_verbatim(by_role, n) + 2 * synthetic.DIM
    return Result(
        name="size",
        value=value,
        unit="bytes an exchange",
        peers={"SQLite FTS5 + FAISS flat": peer},
        limit="vectors alone: 1536",
        ratio=value / peer,
        goal=f"<= {GOAL} of it",
        met=value <= GOAL * peer,
        notes=f"{n:,} exchanges of 1.3 KB of text on average; without verbatim {one_vector:,.0f} with one vector (goal "
        f"1,600), {2 * synthetic.DIM} for each further one (goal 800)",
    )
