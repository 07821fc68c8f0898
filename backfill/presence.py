"""Processes that are at work in a run folder: a file each in RUN/logs while they live.

    present-<name>-<digest of the settings>-<host>-<pid>.json   {"name": "run", "host": ..., "pid": ..., "started": ...,
                                                                 "settings": {...}}

Two processes with the same settings share the work. One with other settings would turn the plan over under those that
are there, so it is refused and told what differs. A process of this host is known by its id and start; one of another
host counts as alive while it touches its file. Deliberately absent: locks. A process that looks away for minutes and
comes back finds its plan changed and ends (`pipeline`); what it publishes late is kept apart by its fingerprint.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.durable import replace_file
from backfill.errors import JoinRefused
from backfill.ids import canonical_json, fingerprint
from backfill.joining import differences
from backfill.turns import is_alive, started_at

TOUCH_EVERY_S = 30.0
GONE_AFTER_S = 300.0
_PREFIX = "present-"


@dataclass(frozen=True, slots=True)
class Present:
    """One process: what it is, where, and the settings that decide its results."""

    name: str
    host: str
    pid: int
    started: str
    settings: dict[str, Any] = field(default_factory=dict)


@contextmanager
def present(logs: Path, name: str, settings: dict[str, Any]) -> Iterator[str]:
    """Announces this process while the block runs. Yields "" or, where another of this name is there, a tag that makes
    names of workers differ from its.

    Raises JoinRefused where a process with other settings is at work in the folder.
    """
    me = Present(name, socket.gethostname(), os.getpid(), started_at(os.getpid()), settings)
    digest = fingerprint(settings)[:8]
    mine = logs / f"{_PREFIX}{name}-{digest}-{me.host}-{me.pid}.json"
    replace_file(mine, canonical_json(me))
    gone = threading.Event()
    touching = threading.Thread(target=_touch, args=(mine, gone), daemon=True)
    try:
        looked_at = [path for path in logs.glob(f"{_PREFIX}*.json") if _matters(path, name, digest)]
        now = mine.stat().st_mtime
        others = [other for other in alive(looked_at, now=now) if (other.host, other.pid) != (me.host, me.pid)]
        for other in others:
            differs = differences(other.settings, _as_read(settings))
            if differs:
                raise JoinRefused(
                    f"`{other.name}` (host {other.host}, process {other.pid}) is at work in {logs.parent} with other "
                    f"settings: {'; '.join(differs[:5])}",
                    hint="wait for it, stop it, or give this run a folder of its own with --out",
                )
        touching.start()
        yield f"-{me.host}-{me.pid}" if any(other.name == name for other in others) else ""
    finally:
        gone.set()
        mine.unlink(missing_ok=True)


def _matters(path: Path, name: str, digest: str) -> bool:
    """Only other settings and equal names do: a thousand tasks of an array need not read each other's files."""
    _, its_name, its_digest, *_ = [*path.name.split("-", 3), "", ""]
    return its_digest != digest or its_name == name


def at_work(logs: Path) -> list[Present]:
    """Whose processes are at work in a run folder, for onlookers: nothing is written or removed."""
    return alive(logs.glob(f"{_PREFIX}*.json"), now=time.time(), tidy=False)


def alive(paths: Iterable[Path], *, now: float, tidy: bool = True) -> list[Present]:
    """Whose processes are at work; `now` is the time of the file system. Files of those that are gone are removed."""
    found = []
    for path in sorted(paths):
        with suppress(OSError, msgspec.DecodeError):
            other = msgspec.json.decode(path.read_bytes(), type=Present)
            if _is_alive(other, now - path.stat().st_mtime):
                found.append(other)
            elif tidy:
                path.unlink(missing_ok=True)
    return found


def _is_alive(other: Present, age_s: float) -> bool:
    if other.host != socket.gethostname():
        return age_s < GONE_AFTER_S
    now = started_at(other.pid)
    return is_alive(other.pid) and (now == other.started or "0" in (now, other.started))


def _touch(path: Path, gone: threading.Event) -> None:
    while not gone.wait(TOUCH_EVERY_S):
        with suppress(OSError):
            os.utime(path)


def _as_read(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they come back from a file."""
    tree: dict[str, Any] = msgspec.json.decode(canonical_json(settings))
    return tree
