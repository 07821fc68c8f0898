"""Archives of transcripts, read in place as containers.

Members are unpacked into a private temporary folder (`unpacking`), and then read like files of a source, known as
`file!member`. The archive's own bytes are one `container` row. Deliberately absent: the members' own paths on disk.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from backfill.ids import ID_BYTES
from backfill.rundir import PlannedUnit
from backfill.sources.result import UnitResult, counted, join
from backfill.sources.units import UnitFile, gather
from backfill.sources.unpacking import CHUNK_BYTES, MAX_TOTAL_BYTES, Damaged, TooLarge, Unpacked, unpack
from backfill.spill import exchange_rows, occurrence_rows
from backfill.types import LedgerRow, LedgerState

ReadUnit = Callable[[UnitFile, Sequence[UnitFile]], UnitResult]


def folder_of(source: str) -> str:
    """The name of the folder that a file or a member stands in; of the archive's where a member has none."""
    outer, _, inner = source.rpartition("!")
    return PurePosixPath(inner).parent.name or PurePosixPath(outer).parent.name


def read_archive(path: Path, source: str, size_bytes: int, read: ReadUnit) -> UnitResult:
    """All members of an archive, each read by `read`; raises OSError when the archive itself cannot be read.

    Members are quarantined as `encrypted`, `unsafe_path`, `ratio`, `too_large` or `damaged`; links, devices and nested
    archives are skipped. An archive that is torn (`damaged_archive`) yields what stands before the tear.
    """
    with path.open("rb") as file:
        digest = _digest(file, size_bytes)
    with tempfile.TemporaryDirectory(prefix="backfill-") as folder:
        budget = min(MAX_TOTAL_BYTES, shutil.disk_usage(folder).free // 2)
        found = Unpacked(Path(folder), source, budget)
        state: LedgerState = "container"
        reason = ""
        try:
            unpack(path, size_bytes, found)
        except TooLarge:
            state, reason = "quarantined", "too_large"
        except (Damaged, zipfile.BadZipFile, tarfile.TarError, NotImplementedError, ValueError):
            state, reason = "quarantined", "damaged_archive"
        rows = [LedgerRow(source, 0, size_bytes, 0, state, reason, None, digest), *found.rows]
        whole = UnitResult("archive", exchange_rows(), occurrence_rows(), rows)
        whole.formats["archive"] = counted(whole, {source: size_bytes})
        files = {file.source: file for file in found.files}
        planned = [PlannedUnit(0, file.source, file.size_bytes, 0) for file in found.files]
        agents = set()
        for unit in sorted(gather(planned), key=lambda u: u.source):
            one = read(files[unit.source], [files[member.source] for member in unit.members])
            agents.add(one.agent)
            join(whole, one, unit.sizes)
        agents.discard("")
        if len(agents) == 1:
            whole.agent = agents.pop()
    return whole


def _digest(file: BinaryIO, size_bytes: int) -> bytes:
    hashed = hashlib.blake2b(digest_size=ID_BYTES)
    left = size_bytes
    while left > 0 and (data := file.read(min(CHUNK_BYTES, left))):
        hashed.update(data)
        left -= len(data)
    return hashed.digest()
