"""What is asked of Slurm's own commands: sbatch, scontrol, squeue, scancel.

Commands are run with arguments, never through a shell, and what they print is read by fixed formats. Deliberately
absent: Slurm's REST interface, which few clusters run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill.errors import BackfillError, UsageError

DEFAULT_MAX_ARRAY_SIZE = 1001  # slurm.conf(5)
TIMEOUT_S = 60.0
_HINTS = {
    "sbatch": "launcher.slurm.options are handed to sbatch as they are: --partition, --account, --qos, --time",
    "scontrol": "is this a host of the cluster? `scontrol ping` answers on one",
    "squeue": "is the controller up? `scontrol ping` says so",
    "scancel": "`squeue --me` shows your jobs",
}
_SEPARATOR = "|"
_FORMAT = _SEPARATOR.join(("%F", "%i", "%j", "%T", "%r", "%M"))


class SlurmError(BackfillError):
    """A command of Slurm failed."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A line of squeue: `id` may stand for several waiting tasks (`12_[3-7%4]`); `ran` is D-HH:MM:SS or MM:SS."""

    id: str
    name: str
    state: str
    reason: str
    ran: str


def max_array_size() -> int:
    """One more than the greatest task number that the cluster takes. Raises SlurmError."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", _slurm(["scontrol", "show", "config"]), re.MULTILINE)
    return int(found[1]) if found else DEFAULT_MAX_ARRAY_SIZE


def submit(script: Path, options: Sequence[str], arguments: Sequence[str]) -> str:
    """Submits a script; returns the job's number. Raises SlurmError with what sbatch says."""
    printed = _slurm(["sbatch", "--parsable", *options, str(script), *arguments])
    number = printed.strip().partition(";")[0]  # NUMBER or NUMBER;CLUSTER
    if not number.isdecimal():
        raise SlurmError(f"sbatch printed no job number: {printed.strip()[:200]!r}")
    return number


def queued(numbers: Sequence[str]) -> list[QueuedJob]:
    """Those of the jobs that wait or run. Raises SlurmError where the queue cannot be asked."""
    if not numbers:
        return []
    # All of this user's: of a job that is long gone, squeue --jobs would make an error.
    printed = _slurm(["squeue", "--noheader", f"--format={_FORMAT}", f"--user={os.getuid()}"])
    rows = [line.strip().split(_SEPARATOR, 5) for line in printed.splitlines()]
    return [QueuedJob(*row[1:]) for row in rows if len(row) == 6 and row[0] in numbers]


def cancel(numbers: Sequence[str]) -> None:
    """Cancels jobs. Raises SlurmError."""
    if numbers:
        _slurm(["scancel", *numbers])


def _slurm(command: list[str]) -> str:
    environment = _environment()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            env=environment,
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"{command[0]} is not on the PATH: this is no host of a Slurm cluster",
            hint="submit from a login node; `--dry-run` prints the scripts anywhere",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} did not answer within {TIMEOUT_S:g} s", retryable=True) from error
    if done.returncode:
        said = " ".join(done.stderr.split())[:500]
        raise SlurmError(f"{command[0]} failed: {said or f'exit status {done.returncode}'}", hint=_HINTS[command[0]])
    return done.stdout


def _environment() -> dict[str, str]:
    """Without the variables of a job that we may be in: sbatch would give them to the new one."""
    kept = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
    ours = ("SLURM", "SBATCH_", "SRUN_", "BACKFILL_SCRATCH", "BACKFILL_JOBS")
    return {name: value for name, value in os.environ.items() if name in kept or not name.startswith(ours)}
