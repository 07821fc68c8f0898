"""What `launcher.slurm` of a configuration may say. Read by `config`; the jobs themselves are `launchers.slurm`'s."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """Jobs that `backfill slurm submit` writes. `options` are sbatch options of every job, such as `--account=lab`;
    `scan_options`, `task_options` and `merge_options` those of one kind, for partition, memory and time.

    At most `running` tasks run at once (0: all). `drain_s` before its time limit a job is asked to finish what is in
    flight (0: it is not), `rounds` is how often what is missing is submitted. `setup` are lines of shell that jobs
    begin with; `command` stands for `backfill` (such as a container's). `scratch` is a node-local folder, in the
    shell's words, where files are written before they are copied to the run folder; `cache_root` one for compile
    caches. Task k of a round starts `stagger_s` x (k modulo `running`) late. `offline` keeps jobs off model hubs.
    """

    options: tuple[str, ...] = ()
    scan_options: tuple[str, ...] = ()
    task_options: tuple[str, ...] = ()
    merge_options: tuple[str, ...] = ()
    running: int = 0
    drain_s: int = 120
    rounds: int = 3
    setup: tuple[str, ...] = ()
    command: str = ""
    scratch: str = ""
    cache_root: str = "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}"
    stagger_s: int = 1
    offline: bool = True
