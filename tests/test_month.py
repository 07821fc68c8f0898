"""A month that is composed from pieces: in blocks and temporary files, and what it shows as `visibility` says."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill import compose, month, overview, pieces, rows, spill
from backfill.documents import documents_of
from backfill.errors import BundleError
from backfill.ids import row_hash
from backfill.indexes import field_blocks
from backfill.inputs import Input, open_bundle
from backfill.merge import merge, merge_inputs
from backfill.pieces import FilePiece, MemoryPiece
from backfill.rows import sort_rows
from backfill.union import Union, text_hash, view_of
from tests.exchanges import make_exchange
from tests.random_rows import row_sets
from tests.test_merge import QUIET, canonical_files, deal, make_settings, put, small_sets, union_of, write

pytestmark = pytest.mark.usefixtures("no_fsync")


@QUIET
@given(row_sets(), st.integers(0, 1000))
def test_rows_in_files_and_small_blocks_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    write(union_of(sets), folder / "once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "BUDGET_BYTES", 1)
        patch.setattr(spill, "_PLACES_BUDGET_BYTES", 1)
        patch.setattr(field_blocks, "BLOCK_CHARS", 20)
        patch.setattr(compose, "VECTOR_BLOCK_ROWS", 2)
        patch.setattr(month, "VECTOR_BLOCK_ROWS", 2)
        patch.setattr(overview, "_RUNS_AT_ONCE", 1)
        for i, hand in enumerate(deal(sets, 2, seed)):
            put(union_of(hand), folder / f"hand-{i}")
        merge([folder / "hand-1", folder / "hand-0"], folder / "joined", lambda path: pytest.fail(str(path)))
    assert canonical_files(folder / "joined") == canonical_files(folder / "once")
    assert not [path for path in (folder / "joined").iterdir() if path.name.startswith("tmp-")]


@QUIET
@given(row_sets())
def test_the_documents_are_those_of_the_view(sets: dict[str, list[Any]]) -> None:
    union = union_of(sets)
    view = view_of(union)
    rows = {name: sort_rows(name, getattr(union, name).values()) for name in ("exchanges", "occurrences", "objects")}
    # All segments as one: claims of one may name exchanges of another.
    claims = sort_rows("claims", union.claims.values())
    segment = compose.SegmentRows(**rows, claims=claims)
    shown = {row_hash(row) for row in view.occurrences}
    found = documents_of(
        **rows,
        claims=claims,
        occurrences_shown=np.array([row_hash(row) in shown for row in rows["occurrences"]], np.bool_),
        claims_shown=np.array([row in view.claims for row in claims], np.bool_),
    )
    wanted = compose._documents(segment, view)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype, name
        assert np.array_equal(found[name], array), name


def test_places_that_differ_in_their_bytes_alone_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = small_sets()
    place = sets["occurrences"][0]
    here = [replace(place, session_id=f"s{i:03d}", source="here/x.jsonl") for i in range(50)]
    there = [replace(row, source="there/x.jsonl") for row in here]
    put(union_of({**sets, "occurrences": here}), tmp_path / "here")
    put(union_of({**sets, "occurrences": there}), tmp_path / "there")
    reads: list[str] = []
    real = FilePiece.each
    monkeypatch.setattr(FilePiece, "each", lambda self, table, at: reads.append(table) or real(self, table, at))
    pieces = [piece for name in ("here", "there") for piece in open_bundle(tmp_path / name).pieces]
    found = overview.overview_of(pieces, ())
    assert reads == ["occurrences", "occurrences"]
    assert found.occurrences_shown.tolist() == [False] * 50 + [True] * 50


def test_a_row_without_a_vector_is_named(tmp_path: Path) -> None:
    union = union_of(small_sets())
    bare = Union(exchanges=union.exchanges, occurrences=union.occurrences, objects=union.objects)
    (tmp_path / "encoder.json").write_text("{}")
    one = Input("x", bare, make_settings(), [tmp_path / "encoder.json"])
    with pytest.raises(BundleError, match=r"core text '.+' has no vector of 8 numbers"):
        merge_inputs([one], tmp_path / "out", {"kind": "test"}, "")


def one_month(numbers: range) -> dict[str, list[Any]]:
    """Exchanges of 1 KB, each with an object and a place, all of one month."""
    place = small_sets()["occurrences"][0]
    rows = [make_exchange(f"case {i}", f"The tests of case {i % 7} pass now. " * 30) for i in numbers]
    return {
        "exchanges": rows,
        "occurrences": [replace(place, exchange_id=row.exchange_id, session_id=f"s{row.user_text}") for row in rows],
        "objects": [replace(small_sets()["objects"][0], exchange_id=row.exchange_id) for row in rows],
        "claims": [],
        "tombstones": [],
    }


def peak_bytes(folder: Path, n: int) -> int:
    """What Python and numpy allocate at most while a month of two bundles with n exchanges together is composed."""
    folder.mkdir()
    put(union_of(one_month(range(n // 2))), folder / "a")
    put(union_of(one_month(range(n // 2, n))), folder / "b")
    tracemalloc.start()
    merge([folder / "a", folder / "b"], folder / "m", lambda path: pytest.fail(str(path)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow  # tracing every allocation takes some 20 s of a core
def test_memory_of_a_month_hardly_grows_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BUDGET_BYTES", 50_000)
    monkeypatch.setattr(spill, "_PLACES_BUDGET_BYTES", 20_000)
    monkeypatch.setattr(field_blocks, "BLOCK_CHARS", 50_000)
    monkeypatch.setattr(rows, "RUN_ROWS", 64)
    small, large = (peak_bytes(tmp_path / str(n), n) for n in (600, 1400))
    assert (large - small) / 800 < 600


def test_vectors_in_memory_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(text: str) -> bytes:
        asked.append(text)
        return text_hash(text)

    monkeypatch.setattr(pieces, "text_hash", counted)
    piece = MemoryPiece("memory", union_of(small_sets()))
    first = piece.vectors("core")
    n_asked = len(asked)
    assert len(first) == piece.n_rows("objects") == n_asked
    assert np.array_equal(piece.vectors("core"), first)
    assert len(asked) == n_asked
