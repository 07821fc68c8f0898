"""Verbatim vectors by config: in the run, in the bundle, through merges and adds, and in search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backfill import durable
from backfill.bundle import Bundle
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, verbatim_chunks
from backfill.config import Config, EmbedderConfig
from backfill.growth import add
from backfill.ingest_config import ingest_for
from backfill.merge import merge
from backfill.query import search
from backfill.verify import read_rows, verify_bundle
from tests import fake_encoder
from tests.test_merge import canonical_files
from tests.test_pipeline import LINE, SAMPLES, TALK, config, go

LONG = LINE % ("user", "what did the log of the nightly export say?") + LINE % (
    "assistant",
    " ".join(f"At {hour:02d}:00 worker {hour} wrote {hour * 37} rows to table export_{hour}." for hour in range(60)),
)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setattr("backfill.growth.bundle_encoder", lambda bundle: fake_encoder.HashEmbedder())


def wanting(source: Path) -> Config:
    return replace(config(source), embedder=EmbedderConfig(verbatim=True))


def source_of(tmp_path: Path, name: str, text: str) -> Path:
    (tmp_path / name).mkdir()
    (tmp_path / name / f"{name}.jsonl").write_text(text)
    return tmp_path / name


def unread(path: Path) -> None:
    raise AssertionError(path)


def layer(bundle: Path) -> tuple[int, int]:
    """Exchanges with verbatim vectors, and vectors; each is compared with its text."""
    opened = Bundle.open(bundle)
    exchanges = vectors = 0
    for segment in opened.segments:
        if not segment.has(VERBATIM_VECTORS):
            continue
        rows = read_rows(segment, "exchanges")
        places = segment.arrays(VERBATIM_ROWS)["exchange_row"].tolist()
        texts = [chunk for row in dict.fromkeys(places) for chunk in verbatim_chunks(rows[row])]
        wanted = fake_encoder.HashEmbedder().encode(texts, kind="passage")
        assert np.array_equal(segment.vectors(VERBATIM_VECTORS, fake_encoder.DIM), wanted)
        exchanges, vectors = exchanges + len(set(places)), vectors + len(places)
    return exchanges, vectors


def test_a_long_exchange_has_a_vector_a_piece(tmp_path: Path) -> None:
    go(wanting(source_of(tmp_path, "a", TALK + LONG)), tmp_path / "run")
    exchanges, vectors = layer(tmp_path / "run" / "bundle")
    assert exchanges == 2
    assert vectors > 5
    assert verify_bundle(tmp_path / "run" / "bundle").errors == []


def test_numbers_of_shards_and_steps_change_no_byte(tmp_path: Path) -> None:
    go(wanting(SAMPLES), tmp_path / "many")
    go(replace(wanting(SAMPLES), distill=Config().distill, scan=Config().scan), tmp_path / "one")
    wanted = canonical_files(tmp_path / "many" / "bundle")
    assert canonical_files(tmp_path / "one" / "bundle") == wanted
    merge([tmp_path / "many" / "bundle", tmp_path / "one" / "bundle"], tmp_path / "both", unread)
    assert canonical_files(tmp_path / "both") == wanted
    assert verify_bundle(tmp_path / "both").errors == []


def test_merged_equals_built_at_once_where_one_has_none(tmp_path: Path) -> None:
    with_, without = source_of(tmp_path, "a", TALK), source_of(tmp_path, "b", LONG)
    go(wanting(with_), tmp_path / "first")
    go(config(without), tmp_path / "second")
    made = [tmp_path / name / "bundle" for name in ("first", "second")]
    merge(made, tmp_path / "ab", unread)
    merge(made[::-1], tmp_path / "ba", unread)
    merge([tmp_path / "ab", *made], tmp_path / "again", unread)
    assert canonical_files(tmp_path / "ab") == canonical_files(tmp_path / "ba") == canonical_files(tmp_path / "again")
    assert layer(tmp_path / "ab")[0] == 1
    assert verify_bundle(tmp_path / "ab").errors == []


def test_what_is_added_later_gets_its_vectors(tmp_path: Path) -> None:
    source = source_of(tmp_path, "a", TALK)
    go(wanting(source), tmp_path / "run")
    (source / "b.jsonl").write_text(LONG)
    bundle = tmp_path / "run" / "bundle"
    add(bundle, [source], ingest_for(bundle, None, ()), lambda: False)
    once = go(wanting(source), tmp_path / "once")
    assert layer(bundle) == layer(tmp_path / "once" / "bundle")
    assert Bundle.open(bundle).manifest.logical_digest == once["logical_digest"]


def test_a_search_takes_the_best_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go(wanting(source_of(tmp_path, "a", TALK + LONG)), tmp_path / "run")
    opened = Bundle.open(tmp_path / "run" / "bundle")
    monkeypatch.setattr(opened, "encoder", lambda: (fake_encoder.HashEmbedder(), ""))
    monkeypatch.setattr("backfill.embedders.onnx.probe_cosine", lambda encoder, path: 1.0)
    (segment,) = opened.segments
    row = next(row for row in read_rows(segment, "exchanges") if "worker 7" in row.agent_text)
    # This encoder knows no nearness: only the very text is near.
    found = search(opened, verbatim_chunks(row)[3], mode="verbatim-vector")
    assert found.hits[0].exchange_id == row.exchange_id.hex()
    assert found.hits[0].score == pytest.approx(1, abs=1e-2)


def test_verify_finds_vectors_of_other_pieces(tmp_path: Path) -> None:
    go(wanting(source_of(tmp_path, "a", TALK + LONG)), tmp_path / "run")
    bundle = tmp_path / "run" / "bundle"
    opened = Bundle.open(bundle)
    (segment,) = opened.segments
    entry = segment.files[VERBATIM_ROWS]
    data = bytearray((bundle / entry.path).read_bytes())
    key = segment.arrays(VERBATIM_ROWS)["key"].tobytes()
    at = data.index(key)
    data[at : at + 16], data[at + 16 : at + 32] = data[at + 16 : at + 32], data[at : at + 16]
    (bundle / entry.path).write_bytes(data)
    for name in ("manifest.json", "manifest.sha256"):
        text = (bundle / name).read_text().replace(entry.sha256, durable.sha256_bytes(bytes(data)))
        (bundle / name).write_text(text)
    (bundle / "manifest.sha256").write_text(f"{durable.sha256_file(bundle / 'manifest.json')}  manifest.json\n")
    assert [e.kind for e in verify_bundle(bundle).errors] == ["vectors"]
