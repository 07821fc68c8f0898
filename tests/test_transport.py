"""One file out and in: deterministic, masked, and safe against archives that mean harm."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from backfill.bundle import Bundle
from backfill.chunks import verbatim_chunks
from backfill.errors import BundleError, UsageError
from backfill.inputs import read_bundle
from backfill.masking import mask, masked_union
from backfill.transport import export_bundle, import_bundle
from backfill.union import text_hash, view_of
from backfill.verify import verify_bundle
from tests import fake_encoder
from tests.test_merge import PARTS, canonical_files
from tests.test_pipeline import LINE, config, go

HOMES = LINE % ("user", "why does /home/tamara/ledger/export.py fail for C:/Users/tamara too? see /Users/tamara/x") + (
    LINE
    % ("assistant", "The path /home/tamara/ledger/out was hard-coded; it reads EXPORT_DIR=/srv/out now, 3 tests pass.")
)
PLAIN = LINE % ("user", "which port does the staging database listen on, and who may connect?") + LINE % (
    "assistant",
    "Port 5433; the role reporting alone, from 10.2.0.0/16.",
)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)


def made(tmp_path: Path, text: str, name: str = "run") -> Path:
    source = tmp_path / f"{name}-src"
    source.mkdir()
    (source / "a.jsonl").write_text(text)
    go(config(source), tmp_path / name)
    return tmp_path / name / "bundle"


def test_there_and_back(tmp_path: Path) -> None:
    bundle = made(tmp_path, PLAIN)
    packed = export_bundle(bundle, tmp_path / "b.tar.zst")
    record = import_bundle(tmp_path / "b.tar.zst", tmp_path / "back")
    assert record["logical_digest"] == packed["logical_digest"]
    assert canonical_files(tmp_path / "back") == canonical_files(bundle)
    assert verify_bundle(tmp_path / "back").errors == []
    assert not (tmp_path / "back" / "lineage").exists()


def test_no_file_of_an_import_is_left_to_the_page_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "b.tar.zst"
    export_bundle(made(tmp_path, PLAIN), archive)
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    import_bundle(archive, tmp_path / "back")
    left = [path.name for path in (tmp_path / "back").rglob("*") if path.stat().st_ino not in synced]
    assert not left


def test_equal_bundles_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export_bundle(made(tmp_path, HOMES + PLAIN, name), tmp_path / f"{name}.tar.zst")
    assert (tmp_path / "one.tar.zst").read_bytes() == (tmp_path / "two.tar.zst").read_bytes()


def test_home_directories_are_masked_unless_kept(tmp_path: Path) -> None:
    bundle = made(tmp_path, HOMES + PLAIN)
    export_bundle(bundle, tmp_path / "masked.tar.zst")
    export_bundle(bundle, tmp_path / "kept.tar.zst", keep_paths=True)
    for name, wanted in (("masked", False), ("kept", True)):
        out = tmp_path / name
        import_bundle(tmp_path / f"{name}.tar.zst", out)
        assert verify_bundle(out).errors == []
        whole = repr([*read_bundle(out).union.exchanges.values(), *read_bundle(out).union.objects.values()])
        assert ("tamara" in whole) is wanted
        files = b"".join(p.read_bytes() for p in out.rglob("*") if p.suffix in (".json", ".arrays"))
        assert (b"tamara" in files) is wanted
        assert len(view_of(read_bundle(out).union).objects) == 2


def test_vectors_of_verbatim_text_go_along(tmp_path: Path) -> None:
    union = read_bundle(made(tmp_path, HOMES + PLAIN)).union
    before = [piece for row in union.exchanges.values() for piece in verbatim_chunks(row)]
    union.add_vectors(before, np.arange(8 * len(before), dtype="<f2").reshape(-1, 8))
    masked = masked_union(union, PARTS)
    after = [piece for row in masked.exchanges.values() for piece in verbatim_chunks(row)]
    assert before != after
    assert [masked.vectors[text_hash(piece)] for piece in after] == [union.vectors[text_hash(p)] for p in before]


def test_masking_what_names_no_home_changes_nothing(tmp_path: Path) -> None:
    union = read_bundle(made(tmp_path, PLAIN)).union
    assert masked_union(union, PARTS) == union


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/home/ada/x and /Users/bob", "~/x and ~"),
        (r"C:\Users\ada\x", r"~\x"),
        ("/Users/Shared/x", "/Users/Shared/x"),
        ("/homes/ada", "/homes/ada"),
        ("", ""),
    ],
)
def test_what_a_home_directory_is(text: str, wanted: str) -> None:
    assert mask(text) == wanted


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    bundle = made(tmp_path, PLAIN)
    export_bundle(bundle, tmp_path / "b.tar.zst")
    with pytest.raises(UsageError, match="is not empty"):
        import_bundle(tmp_path / "b.tar.zst", bundle)
    (tmp_path / "empty").mkdir()
    import_bundle(tmp_path / "b.tar.zst", tmp_path / "empty")
    assert Bundle.open(tmp_path / "empty").manifest.counts["visible_exchanges"] == 1


def members(archive: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    data = zstandard.ZstdDecompressor().stream_reader(archive.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [(info, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def packed(path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(zstandard.ZstdCompressor().compress(raw.getvalue()))
    return path


def info(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made


def renamed(entries: list[tuple[tarfile.TarInfo, bytes]], name: str) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The archive whose manifest names its third file `name`."""
    import hashlib

    old = entries[2][0].name
    manifest = entries[0][1].replace(json.dumps(old).encode(), json.dumps(name).encode())
    sums = f"{hashlib.sha256(manifest).hexdigest()}  manifest.json\n".encode()
    return [
        (info("manifest.json", len(manifest)), manifest),
        (info("manifest.sha256", len(sums)), sums),
        (info(name, len(entries[2][1])), entries[2][1]),
        *entries[3:],
    ]


Entries = list[tuple[tarfile.TarInfo, bytes]]
HOSTILE: dict[str, tuple[Callable[[Entries], Entries], str]] = {
    "a link out": (
        lambda e: [*e[:2], (info("seg/x", 0, tarfile.SYMTYPE, "/etc/passwd"), b""), *e[2:]],
        "no plain file",
    ),
    "a hard link": (lambda e: [*e[:2], (info("seg/x", 0, tarfile.LNKTYPE, "/etc/passwd"), b"")], "no plain file"),
    "a device": (lambda e: [*e[:2], (info("seg/x", 0, tarfile.CHRTYPE), b"")], "no plain file"),
    "a folder": (lambda e: [*e[:2], (info("seg", 0, tarfile.DIRTYPE), b"")], "no plain file"),
    "a path upwards": (lambda e: renamed(e, "../../outside"), "no path inside a bundle"),
    "an absolute path": (lambda e: renamed(e, "/tmp/outside"), "no path inside a bundle"),
    "a file not named": (lambda e: [*e, (info("seg/extra", 1), b"x")], "does not name"),
    "a file twice": (lambda e: [*e, e[-1]], "does not name"),
    "a file missing": (lambda e: e[:-1], "lacks"),
    "no manifest first": (lambda e: e[1:], "does not begin with"),
    "a wrong sum": (lambda e: [e[0], (e[1][0], b"0" * len(e[1][1])), *e[2:]], "lacks the manifest's checksum"),
    "a changed file": (lambda e: [*e[:-1], (e[-1][0], bytes(len(e[-1][1])))], "differs from its checksum"),
    "another size": (
        lambda e: [*e[:-1], (info(e[-1][0].name, len(e[-1][1]) + 1), e[-1][1] + b"x")],
        "bytes, the manifest",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    export_bundle(made(tmp_path, PLAIN), tmp_path / "good.tar.zst")
    change, message = HOSTILE[case]
    bad = packed(tmp_path / "bad.tar.zst", change(members(tmp_path / "good.tar.zst")))
    (tmp_path / "into").mkdir()
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(BundleError, match=message):
        import_bundle(bad, tmp_path / "into" / "bundle")
    assert list((tmp_path / "into").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("data", [b"", b"not zstd", zstandard.compress(b"not tar"), zstandard.compress(b"x" * 2000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BundleError):
        import_bundle(tmp_path / "x", tmp_path / "bundle")


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    export_bundle(made(tmp_path, PLAIN), tmp_path / "good.tar.zst")
    data = (tmp_path / "good.tar.zst").read_bytes()
    for size in (10, len(data) // 2, len(data) * 9 // 10):
        (tmp_path / "cut").write_bytes(data[:size])
        with pytest.raises(BundleError):
            import_bundle(tmp_path / "cut", tmp_path / "bundle")


def bomb(tmp_path: Path, size: int) -> Path:
    """An archive of a few KB whose manifest would be `size` bytes of spaces."""
    compressor = zstandard.ZstdCompressor(level=19)
    path = tmp_path / "bomb.tar.zst"
    with path.open("wb") as raw, compressor.stream_writer(raw) as out:
        out.write(info("manifest.json", size).tobuf(tarfile.USTAR_FORMAT))
        for _ in range(size >> 20):
            out.write(b" " * (1 << 20))
    return path


def test_a_bomb_is_refused_within_little_memory(tmp_path: Path) -> None:
    path = bomb(tmp_path, 200 << 20)
    code = (
        "import sys, resource\n"
        "from pathlib import Path\n"
        "from backfill.errors import BundleError\n"
        "from backfill.transport import import_bundle\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "try:\n    import_bundle(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except BundleError as error:\n    print(error)\n"
        # VmHWM begins anew with the program; ru_maxrss would begin with that of the tests.
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "b"], capture_output=True, text=True, timeout=120
    )
    assert "expands to more than 100 times its size" in done.stdout, done.stderr[-500:]
    assert int(done.stdout.splitlines()[-1]) < 600_000


def test_a_header_that_promises_gigabytes_is_refused(tmp_path: Path) -> None:
    """A long name of 8 GB, as GNU tar writes them: tarfile would read it into memory."""
    path = tmp_path / "x.tar.zst"
    header = info("././@LongLink", 8 << 30, tarfile.GNUTYPE_LONGNAME).tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(zstandard.compress(header + bytes(4096)))
    with pytest.raises(BundleError):
        import_bundle(path, tmp_path / "b")
