"""Archives read in place: the same rows as unpacked, one container row, and nothing hostile gets anywhere."""

from __future__ import annotations

import gzip
import io
import json
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.sources import UnitResult, read_unit, unpacking
from tests.claude_lines import ClaudeFile
from tests.sources.traj_files import dump, swe_document


def session(prompt: str, answer: str = "In db.py.") -> bytes:
    f = ClaudeFile()
    f.user(prompt)
    f.agent(answer)
    return f.data()


FILES = {"a/one.jsonl": session("Where is the lock?"), "b/two.traj": dump(swe_document()), "notes.txt": b"just notes"}


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    return buffer.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def read(tmp_path: Path, data: bytes, source: str = "exports/old.zip") -> UnitResult:
    path = tmp_path / "archive"
    path.write_bytes(data)
    before = sorted(tmp_path.parent.rglob("*"))
    result = read_unit(path, source, len(data), ScanConfig(privacy="off"))
    assert sorted(tmp_path.parent.rglob("*")) == before
    assert check(result.ledger, {source: len(data)}, {e.exchange_id for e in result.exchanges}) == []
    return result


def ends(result: UnitResult) -> dict[str, tuple[int, str, str]]:
    """Per source where its rows end, and the state and reason of the last one."""
    return {r.source: (r.byte_end, r.state, r.reason) for r in result.ledger}


@pytest.mark.parametrize(
    "pack",
    [
        zipped,
        tarred,
        lambda files: gzip.compress(tarred(files)),
        lambda files: zstandard.compress(tarred(files)),
    ],
    ids=["zip", "tar", "tar.gz", "tar.zst"],
)
def test_members_yield_what_the_files_would(tmp_path: Path, pack) -> None:  # type: ignore[no-untyped-def]
    data = pack(FILES)
    result = read(tmp_path, data)
    assert {e.user_text for e in result.exchanges} == {"Where is the lock?", "Fix the clock: mark-task"}
    assert {(o.agent, o.source, o.project) for o in result.occurrences} == {
        ("claude_code", "exports/old.zip!a/one.jsonl", "shop"),
        ("swe_agent", "exports/old.zip!b/two.traj", "b"),
    }
    assert ends(result) == {
        "exports/old.zip": (len(data), "container", ""),
        "exports/old.zip!a/one.jsonl": (len(FILES["a/one.jsonl"]), "part_of", ""),
        "exports/old.zip!b/two.traj": (len(FILES["b/two.traj"]), "skipped", "meta"),
        "exports/old.zip!notes.txt": (10, "skipped", "not_transcript"),
    }


@pytest.mark.parametrize(("compress", "suffix"), [(gzip.compress, ".gz"), (zstandard.compress, ".zst")])
def test_one_compressed_file_is_named_without_the_suffix(tmp_path: Path, compress, suffix: str) -> None:  # type: ignore[no-untyped-def]
    data = compress(session("Where is the lock?"))
    result = read(tmp_path, data, f"proj/s.jsonl{suffix}")
    assert result.agent == "claude_code"
    assert [o.source for o in result.occurrences] == [f"proj/s.jsonl{suffix}!s.jsonl"]


def test_hostile_names_and_links_lead_nowhere(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        for name in ("../up.jsonl", "/etc/abs.jsonl", "C:\\x\\win.jsonl", "ok/..\\..\\up.jsonl", "bell\x07.jsonl"):
            z.writestr(name, session("Hostile"))
        link = zipfile.ZipInfo("link.jsonl")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        z.writestr(link, "/etc/passwd")
        z.writestr("fine\\inner.jsonl", session("Fine"))
    result = read(tmp_path, buffer.getvalue())
    found = ends(result)
    assert [e.user_text for e in result.exchanges] == ["Fine"]
    assert [found[f"exports/old.zip!#{k}"][1:] for k in range(1, 6)] == [("quarantined", "unsafe_path")] * 5
    assert found["exports/old.zip!link.jsonl"][1:] == ("skipped", "link")
    assert found["exports/old.zip!fine/inner.jsonl"][1:] == ("part_of", "")


def test_hostile_tar_members_lead_nowhere(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as t:
        for name, kind, target in (
            ("sym", tarfile.SYMTYPE, "/etc/passwd"),
            ("hard", tarfile.LNKTYPE, "../x"),
            ("pipe", tarfile.FIFOTYPE, ""),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            t.addfile(info)
        for name in ("../up.jsonl", "good.jsonl"):
            info = tarfile.TarInfo(name)
            info.size = len(session("Good"))
            t.addfile(info, io.BytesIO(session("Good")))
    result = read(tmp_path, buffer.getvalue())
    assert {k.partition("!")[2]: v[1:] for k, v in ends(result).items()} == {
        "": ("container", ""),
        "sym": ("skipped", "link"),
        "hard": ("skipped", "link"),
        "pipe": ("skipped", "special"),
        "#4": ("quarantined", "unsafe_path"),
        "good.jsonl": ("part_of", ""),
    }


def test_bombs_are_refused_before_they_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "RATIO_GRACE_BYTES", 1 << 16)
    zeros = bytes(4 << 20)
    result = read(tmp_path, zipped({"bomb.jsonl": zeros, "good.jsonl": session("Good")}))
    assert ends(result)["exports/old.zip!bomb.jsonl"] == (len(zeros), "quarantined", "ratio")
    assert [e.user_text for e in result.exchanges] == ["Good"]
    for data in (gzip.compress(zeros), zstandard.compress(zeros), gzip.compress(tarred({"bomb.jsonl": zeros}))):
        result = read(tmp_path, data, "x.gz")
        assert ends(result)["x.gz"][1:] == ("quarantined", "too_large")
        assert any(r.reason == "too_large" and r.source.startswith("x.gz!") for r in result.ledger)


def test_overlapping_members_and_huge_headers_are_refused(tmp_path: Path) -> None:
    data = zipped({"a.jsonl": session("A" * 4000)})
    at = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entries = data[at:end] * 50
    record = bytearray(data[end:])
    record[8:10] = record[10:12] = (50).to_bytes(2, "little")
    record[12:16] = len(entries).to_bytes(4, "little")
    many = data[:at] + entries + bytes(record)
    assert ends(read(tmp_path, many)) == {"exports/old.zip": (len(many), "quarantined", "too_large")}
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 40
    huge = info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)
    assert ends(read(tmp_path, huge)) == {"exports/old.zip": (len(huge), "quarantined", "damaged_archive")}


def test_encrypted_nested_and_repeated_members(tmp_path: Path) -> None:
    data = bytearray(zipped({"secret.jsonl": session("Secret")}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert ends(read(tmp_path, bytes(data)))["exports/old.zip!secret.jsonl"][1:] == ("quarantined", "encrypted")
    result = read(tmp_path, tarred({"in.zip": zipped(FILES), "in.gz": gzip.compress(b"x")}))
    assert {k.partition("!")[2]: v[1:] for k, v in ends(result).items() if "!" in k} == {
        "in.zip": ("skipped", "nested_archive"),
        "in.gz": ("skipped", "nested_archive"),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as z:
        z.writestr("s.jsonl", session("First"))
        with pytest.warns(UserWarning, match="Duplicate"):
            z.writestr("s.jsonl", session("Second"))
    result = read(tmp_path, buffer.getvalue())
    assert sorted({o.source for o in result.occurrences}) == ["exports/old.zip!s.jsonl", "exports/old.zip!s.jsonl#2"]


def test_a_torn_archive_yields_what_stands_before_the_tear(tmp_path: Path) -> None:
    files = {"one.jsonl": session("One"), "two.jsonl": session("Two") * 400}
    for data in (tarred(files), gzip.compress(tarred(files), 0)):
        result = read(tmp_path, data[: len(data) * 2 // 3], "t.tar")
        assert ends(result)["t.tar"][1:] == ("quarantined", "damaged_archive")
        assert "One" in {e.user_text for e in result.exchanges}
    data = zipped(files)
    assert ends(read(tmp_path, data[:-40])) == {"exports/old.zip": (len(data) - 40, "quarantined", "damaged_archive")}


def test_any_cut_or_changed_byte_is_accounted_for(tmp_path: Path) -> None:
    for data in (zipped(FILES), gzip.compress(tarred(FILES)), zstandard.compress(tarred(FILES)), tarred(FILES)):
        for at in range(0, len(data), max(1, len(data) // 25)):
            read(tmp_path, data[:at])
            read(tmp_path, data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])


def test_an_office_document_or_program_is_just_a_container(tmp_path: Path) -> None:
    result = read(tmp_path, zipped({"word/document.xml": b"<x/>", "META-INF/x": json.dumps({}).encode()}), "d.docx")
    assert {r.state for r in result.ledger} == {"container", "skipped"}
    assert result.exchanges == []
