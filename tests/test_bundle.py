"""Opening bundles: what is read, what a damaged or hostile one gets, and whose encoder is loaded."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import backfill
from backfill import hits as hits_module
from backfill import trust
from backfill.arrays import open_arrays, write_arrays
from backfill.bundle import Bundle, read_manifest
from backfill.columns import ParquetFile
from backfill.errors import BundleError, UsageError
from tests.bundle_fixture import DIM, SPECS, Fixture, load, seal, write_bundle


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def copy(made: Fixture, tmp_path: Path) -> Path:
    return shutil.copytree(made.path, tmp_path / "bundle")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "backfill" / "encoders.json"


def entry(path: Path, role: str, segment: str = "2026-02") -> str:
    return next(f["path"] for f in load(path)["files"] if f["role"] == role and segment in f["path"])


def change(path: Path, **fields: object) -> None:
    seal(path, {**load(path), **fields})


def test_the_package_exports_the_bundle_lazily():
    assert backfill.Bundle is Bundle
    pyproject = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f'version = "{backfill.__version__}"' in pyproject
    with pytest.raises(AttributeError, match="Nope"):
        _ = backfill.Nope


def test_a_bundle_opens_with_its_segments(made: Fixture):
    bundle = Bundle.open(str(made.path))
    assert [segment.name for segment in bundle.segments] == ["2026-02", "2026-03", "undated"]
    assert [len(segment.docs) for segment in bundle.segments] == [2, 3, 1]
    assert bundle.manifest.encoder is not None
    assert bundle.segments[0].vectors("vectors:core", DIM).shape == (4, DIM)
    assert bundle.rooms_table is not None
    assert bundle.rooms_table.n_rows == sum(bool(spec.room) for spec in SPECS)


def test_opening_reads_no_table(made: Fixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ParquetFile, "__init__", lambda *_: pytest.fail("a table was opened"))
    Bundle.open(made.path)


def test_searching_by_word_reads_verbatim_text_of_hits_alone(made: Fixture, monkeypatch: pytest.MonkeyPatch):
    read, by_group = [], []
    real = hits_module.read_cells
    batches = ParquetFile._batches
    monkeypatch.setattr(hits_module, "read_cells", lambda cells: read.extend(cells) or real(cells))
    monkeypatch.setattr(ParquetFile, "_batches", lambda self, c, g: by_group.extend(c) or batches(self, c, g))
    hits = Bundle.open(made.path).search("deadlock", mode="verbatim-bm25").hits
    assert len(hits) == 1
    assert [(file.path.parent.name, name) for file, name, _ in read] == [
        ("2026-03", "user_text"),
        ("2026-03", "agent_text"),
    ]
    assert "agent_text" not in by_group


def test_what_is_no_bundle_is_bad_usage(tmp_path: Path):
    with pytest.raises(UsageError, match="not a bundle"):
        Bundle.open(tmp_path)
    with pytest.raises(UsageError, match="not a bundle"):
        Bundle.open(tmp_path / "missing")


def test_a_manifest_that_was_changed_is_refused(copy: Path):
    data = (copy / "manifest.json").read_bytes()
    (copy / "manifest.json").write_bytes(data.replace(b'"depth":200', b'"depth":201'))
    with pytest.raises(BundleError, match=r"does not match manifest\.sha256"):
        Bundle.open(copy)
    (copy / "manifest.json").write_bytes(data)
    (copy / "manifest.sha256").unlink()
    with pytest.raises(BundleError, match=r"no manifest\.sha256"):
        Bundle.open(copy)


def test_while_a_writer_switches_either_manifest_is_vouched_for(copy: Path):
    line = (copy / "manifest.sha256").read_text()
    (copy / "manifest.sha256").write_text(f"{'0' * 64}  manifest.json\n{line}")
    assert len(Bundle.open(copy).segments) == 3


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_is_refused_by_its_number(copy: Path, version: object):
    change(copy, format=version)
    with pytest.raises(BundleError, match="this version reads 1"):
        Bundle.open(copy)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"format":1}', b'{"format":1,"files":3}', b"\xff\xfe"])
def test_a_manifest_of_another_shape_is_refused(copy: Path, data: bytes):
    import hashlib

    (copy / "manifest.json").write_bytes(data)
    (copy / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")
    with pytest.raises(BundleError):
        Bundle.open(copy)


@pytest.mark.parametrize(
    "bad", ["/etc/passwd", "../other", "seg/2026-02/../../../x", "seg//x", "./x", "", ".", "c:\\x", "a\\b", "a\0b"]
)
def test_paths_that_leave_the_bundle_are_refused(copy: Path, bad: str):
    tree = load(copy)
    tree["files"][0]["path"] = bad
    seal(copy, tree)
    with pytest.raises(BundleError, match="no path inside a bundle"):
        Bundle.open(copy)


def test_links_are_refused(copy: Path, tmp_path: Path):
    file = copy / entry(copy, "exchanges")
    outside = tmp_path / "outside"
    shutil.move(file, outside)
    file.symlink_to(outside)
    with pytest.raises(BundleError, match="not a plain file"):
        Bundle.open(copy)
    file.unlink()
    shutil.move(outside, file)
    shutil.move(copy / "seg", tmp_path / "seg")
    (copy / "seg").symlink_to(tmp_path / "seg")
    with pytest.raises(BundleError, match="is a link"):
        Bundle.open(copy)


def test_missing_short_and_odd_files_are_named(copy: Path):
    file = copy / entry(copy, "occurrences")
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    with pytest.raises(BundleError, match=r"occurrences-.* is .* bytes, the manifest says"):
        Bundle.open(copy)
    file.unlink()
    with pytest.raises(BundleError, match="missing"):
        Bundle.open(copy)
    os.mkfifo(file)
    with pytest.raises(BundleError, match="not a plain file"):
        Bundle.open(copy)


@pytest.mark.parametrize("names", [["2026-02"], ["2026-02", "2026-02"], ["..", "2026-02", "2026-03", "undated"]])
def test_segments_must_be_months_and_all_be_named(copy: Path, names: list[str]):
    change(copy, segments=names)
    with pytest.raises(BundleError, match="segment"):
        Bundle.open(copy)


def test_a_segment_without_its_tables_is_refused(copy: Path):
    change(copy, files=[f for f in load(copy)["files"] if f["role"] != "docs"])
    with pytest.raises(BundleError, match="lacks docs"):
        Bundle.open(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exchange_row", [0, 99]),
        ("exchange_row", [-1, 0]),
        ("object_row", [0, 99]),
        ("object_row", [-2, 0]),
        ("object_row", [0]),
        ("occ_row", [99, 0, 1]),
        ("occ_indptr", [0, 3, 2]),
        ("occ_indptr", [0, 0, 3]),
        ("occ_indptr", [0, 1, 2]),
        ("claim_row", [7]),
    ],
)
def test_documents_that_point_outside_their_tables_are_refused(copy: Path, name: str, value: list[int]):
    segment = Bundle.open(copy).segments[0]
    arrays = {n: np.array(a) for n, a in segment.arrays("docs").items()}
    arrays[name] = np.array(value, arrays[name].dtype)
    file = copy / segment.files["docs"].path
    write_arrays(file, arrays)
    tree = load(copy)
    next(f for f in tree["files"] if f["path"] == segment.files["docs"].path)["bytes"] = file.stat().st_size
    seal(copy, tree)
    with pytest.raises(BundleError, match="outside its tables"):
        _ = Bundle.open(copy).segments[0].docs


def test_rows_and_vectors_must_be_as_many_as_promised(copy: Path):
    tree = load(copy)
    for file in tree["files"]:
        if "2026-02" in file["path"] and file["role"] in ("exchanges", "vectors:core"):
            file["rows"] += 1
    seal(copy, tree)
    segment = Bundle.open(copy).segments[0]
    with pytest.raises(BundleError, match="rows, the manifest says"):
        segment.table("exchanges")
    with pytest.raises(BundleError, match="does not hold 5 vectors"):
        segment.vectors("vectors:core", DIM)
    with pytest.raises(BundleError, match="no file of the role"):
        segment.table("nope")


def test_find_takes_a_unique_prefix(made: Fixture):
    bundle = Bundle.open(made.path)
    xid = made.id("migrate")
    for prefix in (xid, xid[:6], xid[:9].upper()):
        segment, doc = bundle.find(prefix)
        assert segment.exchange_ids[int(segment.docs.exchange_row[doc])].hex() == xid
    for bad in (xid[:5], "zzzzzz", xid + "00", "", "xyz123"):
        with pytest.raises(UsageError, match="is not an exchange id"):
            bundle.find(bad)
    with pytest.raises(UsageError, match="no visible exchange"):
        bundle.find("abcdef" * 5)


def test_an_id_may_end_in_zeros(copy: Path):
    manifest = load(copy)
    docs = next(f for f in manifest["files"] if f["role"] == "docs" and "undated" in f["path"])
    arrays = {name: np.array(array) for name, array in open_arrays(copy / docs["path"]).items()}
    arrays["exchange_id"][0, 13:] = 0
    docs["bytes"] = write_arrays(copy / docs["path"], arrays)
    seal(copy, manifest)
    bundle, wanted = Bundle.open(copy), arrays["exchange_id"][0].tobytes()
    segment, doc = bundle.find(wanted.hex())
    assert (segment.name, segment.document_id(doc)) == ("undated", wanted)


def test_find_never_shows_a_hidden_exchange(made: Fixture):
    bundle = Bundle.open(made.path)
    assert bytes(16) in list(bundle.segments[0].exchange_ids)
    with pytest.raises(UsageError, match="no visible exchange"):
        bundle.find("00" * 16)


def test_an_empty_bundle_opens_and_finds_nothing(tmp_path: Path):
    write_bundle(tmp_path / "empty", specs=(), vectors=False)
    for mode in ("default", "verbatim-bm25", "distilled-vector", "claims"):
        result = Bundle.open(tmp_path / "empty").search("anything", mode=mode)
        assert (result.hits, result.closest_miss, result.warnings) == ((), None, ())


# ---- trust


def test_a_strangers_encoder_is_not_loaded(made: Fixture):
    encoder, reason = Bundle.open(made.path).encoder()
    assert encoder is None
    assert "--trust-encoder" in reason


def test_an_encoder_is_loaded_when_told_or_recorded(made: Fixture, own_state: Path):
    encoder, reason = Bundle.open(made.path, trust_encoder=True).encoder()
    assert encoder is not None
    assert (encoder.dim, reason) == (DIM, "")
    trust.record_encoder(trust.encoder_digest(made.path / "encoder"))
    trust.record_encoder("ab" * 32)
    trust.record_encoder("ab" * 32)
    assert len(json.loads(own_state.read_bytes())) == 2
    assert Bundle.open(made.path).encoder()[0] is not None


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'["'])
def test_a_damaged_record_trusts_nothing(made: Fixture, own_state: Path, data: bytes):
    own_state.parent.mkdir(parents=True)
    own_state.write_bytes(data)
    assert Bundle.open(made.path).encoder()[0] is None
    digest = trust.encoder_digest(made.path / "encoder")
    trust.record_encoder(digest)
    assert trust.is_trusted(digest)


def test_the_shipped_list_vouches(made: Fixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    digest = trust.encoder_digest(made.path / "encoder")
    assert not trust.is_trusted(digest)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trusted_encoders.json").write_text(json.dumps([digest]))
    monkeypatch.setattr(trust, "SHIPPED", tmp_path / "data" / "trusted_encoders.json")
    assert trust.is_trusted(digest)


def test_a_swapped_encoder_is_refused_even_when_the_manifest_is_sealed(copy: Path):
    trust.record_encoder(trust.encoder_digest(copy / "encoder"))
    model = copy / "encoder" / "model.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    with pytest.raises(BundleError, match=r"model\.onnx is not the file"):
        Bundle.open(copy).encoder()
    card = copy / "encoder" / "encoder.json"
    card.write_bytes(card.read_bytes().replace(b'"pooling":"mean"', b'"pooling":"moan"'))
    with pytest.raises(BundleError, match="not the one that its manifest names"):
        Bundle.open(copy).encoder()


def test_an_encoder_outside_the_bundle_or_of_another_size_is_refused(copy: Path):
    info = load(copy)["encoder"]
    change(copy, encoder={**info, "path": "../encoder"})
    with pytest.raises(BundleError, match="outside the bundle"):
        Bundle.open(copy, trust_encoder=True).encoder()
    change(copy, encoder={**info, "dim": DIM * 2})
    with pytest.raises(BundleError, match="the manifest says 64"):
        Bundle.open(copy, trust_encoder=True).encoder()


def test_manifest_fields_beyond_ours_are_left_alone(copy: Path):
    change(copy, later={"a": 1})
    assert read_manifest(copy).format == 1
