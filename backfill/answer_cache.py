"""Answers that were paid for once, kept in the user's cache for every later run and bundle.

The cache holds the runs' own answer logs under a second name (a hard link where the file system allows it, else a copy
made when the log is closed), so it is as complete as they are, and a run's folder may go. An answer counts only for the
fingerprint, content, attempt and prompt that it was given to (`answers`). Deliberately absent: answers of deterministic
engines, which cost nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from backfill.answers import AnswerLog
from backfill.errors import ConfigError
from backfill.rundir import LOGS
from backfill.weights import cache_dir


@contextlib.contextmanager
def open_log(
    folder: Path, worker: str, fingerprint: str, *, cached: bool, others: Sequence[Path] = ()
) -> Iterator[AnswerLog]:
    """The worker's log of a run, replaying what its workers, and with `cached` all earlier runs, were answered.

    `others` are the log folders of runs whose answers count whatever `cached` says.

    A cache that cannot be written is done without; the log itself raises OSError.
    """
    suffix = _suffix(fingerprint)
    path = folder / f"answers-{worker}{suffix}"
    known = sorted(folder.glob(f"answers-*{suffix}")) + _logs_of(others, suffix)
    known += shelved(fingerprint) if cached else []
    with AnswerLog(path, fingerprint, replay=known) as log:
        twin = _shelf() / (hashlib.blake2b(str(path.absolute()).encode(), digest_size=8).hexdigest() + suffix)
        linked = cached and _link(path, twin)
        yield log
    if cached and not linked:
        with contextlib.suppress(OSError):
            shutil.copyfile(path, twin)


@contextlib.contextmanager
def open_shelf(fingerprint: str, *, cached: bool, others: Sequence[Path] = ()) -> Iterator[AnswerLog | None]:
    """A log for what has no run folder: it lies in the cache itself, one file for all who add under a fingerprint.

    None where `cached` is off or the cache cannot be written; then nothing is replayed either, and nothing kept.
    Several processes may append at once: their lines may get torn, and a torn line is an answer that is asked again.
    """
    log: AnswerLog | None = None
    if cached and fingerprint:
        with contextlib.suppress(OSError):
            _shelf().mkdir(mode=0o700, parents=True, exist_ok=True)
            known = shelved(fingerprint) + _logs_of(others, _suffix(fingerprint))
            log = AnswerLog(_shelf() / f"added{_suffix(fingerprint)}", fingerprint, replay=known)
    try:
        yield log
    finally:
        if log is not None:
            log.close()


def shelved(fingerprint: str) -> list[Path]:
    """The logs in the user's cache that may hold answers of a fingerprint."""
    return sorted(_shelf().glob(f"*{_suffix(fingerprint)}"))


def _shelf() -> Path:
    return cache_dir() / "answers"


def _suffix(fingerprint: str) -> str:
    return f".{fingerprint[:8]}.jsonl"


def _logs_of(folders: Sequence[Path], suffix: str) -> list[Path]:
    return [log for folder in folders for log in sorted(folder.glob(f"answers-*{suffix}"))]


def cache_places(names: Sequence[str]) -> tuple[list[Path], list[Path]]:
    """The log folders of the runs, and the bundles, among the places that `distill.cache_from` names.

    Raises ConfigError for a place that is neither.
    """
    runs: list[Path] = []
    bundles: list[Path] = []
    for name in names:
        path = Path(name).expanduser()
        if (path / "manifest.json").is_file():
            bundles.append(path)
        elif (path / LOGS).is_dir():
            runs.append(path / LOGS)
        else:
            raise ConfigError(f"distill.cache_from: {name} is no run folder and no bundle")
    return runs, bundles


def _link(path: Path, twin: Path) -> bool:
    """Gives the log its second name; what stood there was the log of a run folder that is gone."""
    with contextlib.suppress(OSError):
        twin.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if twin.exists() and twin.samefile(path):
            return True
        if twin.exists():
            twin.rename(
                twin.with_name(f"{twin.name.partition('.')[0]}-{twin.stat().st_ino}.{twin.name.partition('.')[2]}")
            )
        os.link(path, twin)
        return True
    return False
