"""The spool: what waits to be added to a bundle, one small file an entry, left by an agent's session-end hook.

`enqueue` must cost an agent nothing, so it writes an entry and ends; `add`, `sweep` and `watch` take the entries.
Taking renames an entry, so that two of them never share one; what a dead taker held goes back. Imports next to
nothing, for `enqueue` has 100 ms in all. Deliberately absent: a daemon, and anything of a transcript but its path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

MAX_ENTRY_BYTES = 64 << 10
SUFFIX, TAKEN = ".entry", ".taken-"


class Entry:
    """One thing to add: `source` is an absolute path, `bundle` the bundle it is for ("" for any)."""

    __slots__ = ("bundle", "path", "source")

    def __init__(self, path: str, source: str, bundle: str) -> None:
        self.path, self.source, self.bundle = path, source, bundle


def spool_folder() -> str:
    """$BACKFILL_SPOOL, or `spool` in this user's state folder."""
    given = os.environ.get("BACKFILL_SPOOL")
    if given:
        return given
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "backfill", "spool")


def put(source: str, bundle: str = "", folder: str = "") -> str:
    """Leaves an entry; returns its path. Raises OSError where the spool cannot be written.

    The entry is fsynced under a hidden name and renamed, so that it is there whole or not at all. Names sort by time.
    """
    folder = folder or spool_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = f"{time.time_ns():020d}-{os.getpid()}{SUFFIX}"
    data = b"\0".join(os.fsencode(part) for part in (source, bundle))
    hidden = os.path.join(folder, f".{name}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    path = os.path.join(folder, name)
    os.rename(hidden, path)
    return path


def take(bundles: Sequence[str], folder: str = "") -> list[Entry]:
    """Takes the entries for these bundles (absolute paths), oldest first; those for any go to a single bundle alone.

    An entry stays taken until `settle` or `give_back`; one whose taker died is free again. Damaged entries are passed
    over and stay.
    """
    folder = folder or spool_folder()
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    taken: list[Entry] = []
    for name in names:
        stem, held, holder = name.partition(TAKEN)
        if not stem.endswith(SUFFIX) or stem.startswith(".") or (held and _alive(holder)):
            continue
        entry = _read(os.path.join(folder, name))
        if entry is None or not (entry.bundle in bundles if entry.bundle else len(bundles) == 1):
            continue
        mine = os.path.join(folder, f"{stem}{TAKEN}{os.getpid()}")
        try:
            os.rename(entry.path, mine)
        except FileNotFoundError:
            continue  # another one was first
        entry.path = mine
        taken.append(entry)
    return taken


def settle(entries: Iterable[Entry]) -> None:
    """What these entries named is in the bundle now."""
    for entry in entries:
        os.unlink(entry.path)


def give_back(entries: Iterable[Entry]) -> None:
    """Lays entries that were not added back for the next taker."""
    for entry in entries:
        if os.path.exists(entry.path):
            os.rename(entry.path, entry.path.partition(TAKEN)[0])


def _read(path: str) -> Entry | None:
    try:
        with open(path, "rb") as file:
            parts = file.read(MAX_ENTRY_BYTES).split(b"\0")
    except OSError:
        return None
    return Entry(path, os.fsdecode(parts[0]), os.fsdecode(parts[1])) if len(parts) == 2 and parts[0] else None


def _alive(holder: str) -> bool:
    if not holder.isdecimal():
        return False
    if int(holder) == os.getpid():
        return True
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
