"""Turns of writers at one folder: a claim published by `os.link`, broken when the process that holds it is gone.

Works on every POSIX file system, shared ones included. A process is known by its id and the moment it started, for ids
come again: a container gives its first process the same one at every start. Deliberately absent: turns across hosts,
where nobody can see whether a holder lives; there the digest that a writer expects decides (`BundleWriter.commit`).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backfill.durable import attempt_name, publish_file
from backfill.errors import BundleChanged

TURN_WAIT_S = 60.0
_LOOK_EVERY_S = 0.02


@contextmanager
def taking_turns(path: Path, wait_s: float = TURN_WAIT_S) -> Iterator[None]:
    """One writer of this host at a time. Raises BundleChanged when the turn does not come."""
    claim = path / f"tmp-turn-{socket.gethostname()}"
    mine = f"{os.getpid()} {started_at(os.getpid())} {attempt_name()}"
    try:
        _wait_for(claim, mine, wait_s)
        yield
    finally:
        # Also where an interruption came between the claim and the work: this process may live on for days.
        if _read(claim) == mine:
            claim.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Whether a process of this host has this id."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def started_at(pid: int) -> str:
    """When a process started, in clock ticks since boot; "0" where the system does not say."""
    try:
        # Field 22 of proc(5)'s stat; the command's name, field 2, may hold blanks and brackets.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "0"


def _wait_for(claim: Path, mine: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while not publish_file(claim, mine.encode()):
        holder = _read(claim)
        if holder is not None and _is_gone(holder):
            _break(claim, holder)
        elif time.monotonic() > deadline:
            raise BundleChanged(
                f"another writer holds {claim.parent}",
                hint=f"wait for it; if none runs, delete {claim}",
                retryable=True,
            )
        else:
            time.sleep(_LOOK_EVERY_S)


def _is_gone(holder: str) -> bool:
    """Whether the process of a claim is no more. Claims of earlier versions name the id alone."""
    pid, _, rest = holder.partition(" ")
    if not pid.isdecimal():
        return False
    then, now = rest.partition(" ")[0] or "0", started_at(int(pid))
    return not is_alive(int(pid)) or (then != now and "0" not in (then, now))


def _break(claim: Path, holder: str) -> None:
    """Removes a dead holder's claim, and not the one that a faster writer has put in its place meanwhile."""
    aside = claim.with_name(f"{claim.name}-{attempt_name()}")
    try:
        claim.rename(aside)
    except FileNotFoundError:
        return
    if _read(aside) != holder and not claim.exists():
        os.link(aside, claim)
    aside.unlink()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return None
