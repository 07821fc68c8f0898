"""The laws of merging, over random rows: canonical files byte for byte, the digest for grown against built at once."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill.compose import write_bundle
from backfill.embed import object_texts
from backfill.errors import BackfillError, MergeRefused
from backfill.indexes.tokenizer import TOKENIZER_VERSION
from backfill.inputs import Input, Settings, combine, join_settings, read_bundle
from backfill.merge import merge, merge_inputs
from backfill.types import Tombstone
from backfill.union import Union, logical_digest, view_of
from backfill.verify import verify_bundle
from tests.random_rows import row_sets

pytestmark = pytest.mark.usefixtures("no_fsync")

DIM = 8
PARTS = ("core", "context")
QUIET = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


def make_settings(**changes: Any) -> Settings:
    encoder = {
        "sha256": hashlib.sha256(b"{}").hexdigest(),
        "dim": DIM,
        "pooling": "mean",
        "prompts": {},
        "probe_cosine_min": 0.999,
        "path": "encoder",
    }
    values: dict[str, Any] = {
        "encoder": encoder,
        "bm25": {"tokenizer_version": TOKENIZER_VERSION, "k1": 1.5, "b": 0.75},
        "index": {"fusion": "weighted", "weights": {"bm25": 0.5, "vector": 0.5}, "depth": 200, "rrf_k": 60},
        "parts": PARTS,
        "fingerprints": {"distill": ["f0"]},
    }
    return Settings(**{**values, **changes})


def vector(text: str) -> np.ndarray[Any, Any]:
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")
    row = np.random.default_rng(seed).normal(size=DIM)
    return (row / np.linalg.norm(row)).astype("<f2") if text else np.zeros(DIM, "<f2")


def union_of(sets: dict[str, list[Any]]) -> Union:
    union = Union()
    for name, rows in sets.items():
        union.add(name, rows)
    texts = [text for row in sets["objects"] for text in object_texts(row, PARTS).values()]
    texts += [row.text for row in sets["claims"]]
    if texts:
        union.add_vectors(texts, np.stack([vector(text) for text in texts]))
    return union


def canonical_files(bundle: Path) -> dict[str, bytes]:
    """Everything that must repeat to the byte: manifest.json and what it names (not lineage/ nor manifests/)."""
    listed = json.loads((bundle / "manifest.json").read_bytes())["files"]
    return {path: (bundle / path).read_bytes() for path in ["manifest.json", *(entry["path"] for entry in listed)]}


def deal(sets: dict[str, list[Any]], hands: int, seed: int) -> list[dict[str, list[Any]]]:
    """Deals rows out to overlapping hands."""
    dealer = random.Random(seed)
    dealt: list[dict[str, list[Any]]] = [{name: [] for name in sets} for _ in range(hands)]
    for name, rows in sets.items():
        for row in rows:
            for hand in dealer.sample(range(hands), dealer.randint(1, hands)):
                dealt[hand][name].append(row)
    return dealt


def write(union: Union, out: Path) -> dict[str, Any]:
    card = out.parent / "encoder.json"
    card.write_text("{}")  # an encoder that nobody vouches for: never loaded
    return write_bundle(union, make_settings(), [card], out, {"kind": "test"})


@QUIET
@given(row_sets(), st.integers(1, 4), st.integers(0, 1000))
def test_any_sharding_order_and_repetition_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]], hands: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("laws")
    once = write(union_of(sets), folder / "once")
    inputs = [Input(str(i), union_of(hand), make_settings()) for i, hand in enumerate(deal(sets, hands, seed))]
    random.Random(seed).shuffle(inputs)
    total = combine([one.union for one in [*inputs, *inputs[:1]]])
    assert write(total, folder / "dealt")["logical_digest"] == once["logical_digest"]
    assert canonical_files(folder / "dealt") == canonical_files(folder / "once")
    for one in inputs:
        one.encoder_files = [folder / "encoder.json"]
    merge_inputs(inputs, folder / "pieces", {"kind": "test"}, "")
    assert canonical_files(folder / "pieces") == canonical_files(folder / "once")


@QUIET
@given(row_sets(), row_sets(), row_sets())
def test_merging_bundles_is_associative_commutative_and_idempotent(
    tmp_path_factory: pytest.TempPathFactory, a: dict[str, list[Any]], b: dict[str, list[Any]], c: dict[str, list[Any]]
) -> None:
    folder = tmp_path_factory.mktemp("laws")
    for name, sets in (("a", a), ("b", b), ("c", c)):
        write(union_of(sets), folder / name)

    def merged(out: str, *names: str) -> dict[str, bytes]:
        merge([folder / n for n in names], folder / out, read_run=lambda path: pytest.fail("no run here"))
        return canonical_files(folder / out)

    merged("ab", "a", "b")
    merged("bc", "c", "b")
    wanted = merged("abc", "ab", "c")
    assert merged("cba", "a", "bc") == wanted
    assert merged("again", "abc", "abc", "b") == wanted


@QUIET
@given(row_sets(), st.data())
def test_a_bundle_that_grew_equals_one_built_at_once(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("grow")
    first, second = deal(sets, 2, data.draw(st.integers(0, 99)))
    write(union_of(first), folder / "grown")
    write(union_of(second), folder / "second")
    record = merge(
        [folder / "grown", folder / "second"], folder / "grown", read_run=lambda path: pytest.fail(str(path))
    )
    once = write(union_of(sets), folder / "once")
    assert record["logical_digest"] == once["logical_digest"]


def put(union: Union, out: Path) -> None:
    """Writes a bundle as commands do: its segments are vouched for afterwards."""
    (out.parent / "encoder.json").write_text("{}")
    merge_inputs([Input("x", union, make_settings(), [out.parent / "encoder.json"])], out, {"kind": "test"}, "")


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(row_sets(), st.integers(2, 4), st.integers(0, 1000))
def test_segments_that_are_taken_over_whole_change_no_byte(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]], hands: int, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("whole")
    write(union_of(sets), folder / "once")
    names = [folder / f"hand-{i}" for i in range(hands)]
    for name, hand in zip(names, deal(sets, hands, seed), strict=True):
        put(union_of(hand), name)
    dealer = random.Random(seed)
    while len(names) > 1:
        dealer.shuffle(names)
        out = names[0] if dealer.random() < 0.5 else folder / f"joined-{len(names)}"
        merge(names[:2], out, read_run=lambda path: pytest.fail(str(path)))
        names = [out, *names[2:]]
    assert canonical_files(names[0]) == canonical_files(folder / "once")
    assert verify_bundle(names[0]).errors == []


def test_months_that_do_not_meet_are_copied_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from backfill import merged

    early, late = month_sets("2026-02", "one"), month_sets("2026-04", "two")
    put(union_of(early), tmp_path / "a")
    put(union_of(late), tmp_path / "b")
    monkeypatch.setattr(merged, "write_segment", lambda *args: pytest.fail("nothing is to be composed"))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    both = {name: [*early[name], *late[name]] for name in early}
    monkeypatch.undo()
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    write(union_of(both), tmp_path / "once")
    assert canonical_files(tmp_path / "m") == canonical_files(tmp_path / "once")


def test_a_damaged_segment_is_refused_when_it_is_copied(tmp_path: Path) -> None:
    put(union_of(month_sets("2026-02", "one")), tmp_path / "a")
    put(union_of(month_sets("2026-04", "two")), tmp_path / "b")
    for victim in sorted(p for p in (tmp_path / "a" / "seg").rglob("*.*") if p.is_file()):
        data = victim.read_bytes()
        victim.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        with pytest.raises(BackfillError, match=victim.name):
            merge([tmp_path / "b", tmp_path / "a"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
        victim.write_bytes(data)
        assert not (tmp_path / "m" / "manifest.json").exists()


def test_of_a_strangers_bundle_nothing_derived_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from backfill import merged

    put(union_of(month_sets("2026-02", "one")), tmp_path / "a")
    put(union_of(month_sets("2026-04", "two")), tmp_path / "b")
    composed: list[str] = []
    real = merged.write_segment
    monkeypatch.setattr(merged, "write_segment", lambda w, name, *rest: composed.append(name) or real(w, name, *rest))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    merge([tmp_path / "a", tmp_path / "b"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    assert composed == ["2026-02", "2026-04"]


@QUIET
@given(row_sets())
def test_verify_agrees_with_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]]
) -> None:
    out = tmp_path_factory.mktemp("verify") / "bundle"
    write(union_of(sets), out)
    assert verify_bundle(out).errors == []


@QUIET
@given(row_sets(), st.data())
def test_a_bundle_read_back_is_the_union_it_was_written_from(
    tmp_path_factory: pytest.TempPathFactory, sets: dict[str, list[Any]], data: st.DataObject
) -> None:
    out = tmp_path_factory.mktemp("back") / "bundle"
    union = union_of(sets)
    write(union, out)
    back = read_bundle(out).union
    assert (back.exchanges, back.occurrences, back.objects) == (union.exchanges, union.occurrences, union.objects)
    assert (back.claims, back.tombstones, back.vectors) == (union.claims, union.tombstones, union.vectors)


def month_sets(month: str, word: str) -> dict[str, list[Any]]:
    """One exchange of one month, in words of its own."""
    from dataclasses import replace

    from backfill.ids import content_id, exchange_id, row_hash

    sets = small_sets()
    content = content_id(word, word, 0, ())
    row = replace(
        sets["exchanges"][0], content_id=content, prev_content_id=None, exchange_id=exchange_id(content, None),
        user_text=word, agent_text=word, tools=(),
    )  # fmt: skip
    at = int(datetime.fromisoformat(f"{month}-10T00:00:00+00:00").timestamp()) * 1_000_000
    place = replace(sets["occurrences"][0], exchange_id=row.exchange_id, started_at=at, session_id=word)
    made = replace(
        sets["objects"][0], exchange_id=row.exchange_id, source_row=row_hash(row), specific_context="",
        context_start=0, context_end=0, context_field="user_text",
    )  # fmt: skip
    return {"exchanges": [row], "occurrences": [place], "objects": [made], "claims": [], "tombstones": []}


def small_sets() -> dict[str, list[Any]]:
    """One exchange with an object and two places."""
    from tests.test_visibility import PLACE, _exchange, _object

    row = _exchange(output="exit 0")
    place = replace(PLACE, exchange_id=row.exchange_id, started_at=1_775_000_000_000_000)
    earlier = replace(place, session_id="s0", started_at=1_772_400_000_000_000)
    return {
        "exchanges": [row],
        "occurrences": [place, earlier],
        "objects": [_object(row)],
        "claims": [],
        "tombstones": [],
    }


def test_a_segment_is_the_month_of_the_earliest_occurrence(tmp_path: Path) -> None:
    write(union_of(small_sets()), tmp_path / "b")
    assert [p.name for p in (tmp_path / "b" / "seg").iterdir()] == ["2026-03"]


@pytest.mark.parametrize("started_at", [-62_135_600_008_000_000, 253_402_318_799_000_000])
def test_a_time_beyond_the_calendar_is_undated(tmp_path: Path, started_at: int) -> None:
    sets = small_sets()
    sets["occurrences"] = [replace(place, started_at=started_at) for place in sets["occurrences"]]
    write(union_of(sets), tmp_path / "b")
    assert [p.name for p in (tmp_path / "b" / "seg").iterdir()] == ["undated"]
    merge([tmp_path / "b"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    assert canonical_files(tmp_path / "m") == canonical_files(tmp_path / "b")


def test_an_earlier_copy_moves_an_exchange_to_its_month(tmp_path: Path) -> None:
    sets = small_sets()
    late = {**sets, "occurrences": sets["occurrences"][:1]}
    write(union_of(late), tmp_path / "late")
    assert [p.name for p in (tmp_path / "late" / "seg").iterdir()] == ["2026-03"]
    write(union_of(sets), tmp_path / "all")
    merge([tmp_path / "late", tmp_path / "all"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path)))
    assert canonical_files(tmp_path / "m") == canonical_files(tmp_path / "all")


def test_a_tombstone_hides_in_every_later_merge(tmp_path: Path) -> None:
    sets = small_sets()
    write(union_of(sets), tmp_path / "full")
    hidden = {**sets, "tombstones": [Tombstone(sets["exchanges"][0].exchange_id, "asked")]}
    write(union_of(hidden), tmp_path / "hidden")
    record = merge(
        [tmp_path / "full", tmp_path / "hidden"], tmp_path / "m", read_run=lambda path: pytest.fail(str(path))
    )
    assert record["exchanges"] == 0
    assert record["tombstoned"] == 1


def test_the_digest_sees_the_visible_rows_alone() -> None:
    sets = small_sets()
    from dataclasses import replace

    union, grown = union_of(sets), union_of(sets)
    grown.add("occurrences", [replace(sets["occurrences"][0], n_records=1, open=True)])
    assert logical_digest(view_of(grown), []) == logical_digest(view_of(union), [])


def test_different_encoders_are_refused() -> None:
    other = make_settings(encoder={**(make_settings().encoder or {}), "sha256": "1" * 64})
    with pytest.raises(MergeRefused, match="different encoders"):
        join_settings([make_settings(), other])


def test_writing_the_same_bundle_again_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "b"
    assert write(union_of(small_sets()), out)["changed"]
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    assert not write(union_of(small_sets()), out)["changed"]
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before


def test_an_old_manifest_is_kept_for_rollback(tmp_path: Path) -> None:
    out, sets = tmp_path / "b", small_sets()
    write(union_of({**sets, "occurrences": sets["occurrences"][:1]}), out)
    old = (out / "manifest.json").read_bytes()
    write(union_of(sets), out)
    assert [p.read_bytes() for p in (out / "manifests").iterdir()] == [old]
    assert not [p for p in out.iterdir() if p.name.startswith("tmp-")]


def test_verify_finds_every_flipped_byte(tmp_path: Path) -> None:
    out, sets = tmp_path / "b", small_sets()
    write(union_of({**sets, "occurrences": sets["occurrences"][:1]}), out)
    write(union_of(sets), out)
    dealer = random.Random(5)
    missed = []
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        data = path.read_bytes()
        for offset in {0, len(data) - 1, *(dealer.randrange(len(data)) for _ in range(3))} if data else ():
            path.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << dealer.randrange(8)]) + data[offset + 1 :])
            if not verify_bundle(out).errors:
                missed.append((path.relative_to(out).as_posix(), offset))
        path.write_bytes(data)
    assert missed == []
    assert verify_bundle(out).errors == []
