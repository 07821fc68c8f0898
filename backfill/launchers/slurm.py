"""Runs on Slurm: a scan job, an array of `backfill work` tasks, and a merge job that submits again what is missing.

Writes the jobs of `slurm/` with the settings of a configuration into RUN/slurm, and one record a round. Which shards
are done is read from manifests alone, never from what Slurm says of a job. Deliberately absent: doing any of the work.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from backfill.config import Config
from backfill.durable import make_dirs, replace_file
from backfill.errors import ConfigError, ShardError
from backfill.ids import canonical_json
from backfill.launchers import sbatch
from backfill.manifest import check
from backfill.rundir import RunDir

FOLDER = "slurm"
SCAN, WORK, MERGE, RAY = "scan", "work", "merge", "ray"
RETRY_PAUSES_S = (10.0, 60.0, 300.0)
_TEMPLATES = Path(__file__).parent / "jobs"
_STEP = "step.sh"
_SETTINGS = "# settings\n"
_SIGNAL = "#SBATCH --signal=B:USR1@120\n"


@dataclass(frozen=True, slots=True)
class Job:
    """One call of sbatch: which script with what, and the job of this round that it waits for (`afterok:scan`)."""

    name: str
    arguments: tuple[str, ...]
    array: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """What was submitted together. `jobs` are Slurm's numbers by name; `verdict` is the gate's on the engine; `left` is
    how many rounds may follow."""

    number: int
    left: int
    verdict: str
    max_array_size: int
    jobs: dict[str, str]
    array: str = ""
    modulus: int = 0


def deal(shards: Iterable[int], n_tasks: int, max_array_size: int) -> tuple[int, list[int]]:
    """(modulus, task numbers): task k does every shard s with s modulo `modulus` equal to k; each has one to do.

    The modulus is a multiple of `n_tasks`, so large that what one lost task left behind is spread over up to `n_tasks`
    of them; numbers stay below `max_array_size`, as Slurm wants it.
    """
    wanted = sorted(set(shards))
    width = max(1, min(n_tasks, max_array_size))
    best = width, sorted({shard % width for shard in wanted})
    for modulus in range(2 * width, max_array_size + 1, width):
        if len(best[1]) == min(width, len(wanted)):
            break
        numbers = {shard % modulus for shard in wanted}
        if len(best[1]) < len(numbers) <= width:
            best = modulus, sorted(numbers)
    return best


def array_of(numbers: Sequence[int], running: int) -> str:
    """sbatch's --array of task numbers, runs joined: `0-3,7%2`; `running` 0 sets no limit."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{text}%{running}" if running else text


def jobs_of_round(
    config: Config, number: int, max_array_size: int, missing: tuple[list[int], list[int]]
) -> tuple[list[Job], str, int]:
    """The jobs of a round, the array and its modulus. `missing` are scan shards, and shards to distill or embed.

    Where reading is not done, nobody knows the shards yet: all tasks are submitted, and those without a shard end.
    """
    scan, work = missing
    n_tasks = config.launcher.workers or 1
    modulus, numbers = deal(range(n_tasks) if scan else work, n_tasks, max_array_size)
    array = array_of(numbers, config.launcher.slurm.running)
    jobs = [Job(SCAN, ())] if scan else []
    if numbers:
        jobs.append(Job(WORK, (str(modulus),), array, f"afterok:{SCAN}" if scan else ""))
    jobs.append(Job(MERGE, (str(number),), after=f"afterany:{WORK}" if numbers else ""))
    return jobs, array, modulus


def missing_shards(run: RunDir) -> tuple[list[int], list[int]]:
    """Scan shards without a manifest, and shards without objects or vectors.

    Where reading or the cutting into shards is not done, the scan job is needed again and nobody knows the others.
    """
    plan = run.plan()
    scan = run.missing(plan, "scan")
    covered = {r.product: r.n_scan_shards for r in plan.rounds}  # the last round of each product
    products = plan.bound_config().distill.products
    if scan or any(covered.get(product) != len(plan.scan_shards) for product in products):
        return scan or [0], []
    return [], sorted({*run.missing(plan, "distill"), *run.missing(plan, "embed")})


def damaged_files(run: RunDir) -> list[str]:
    """Data files of finished shards that are missing or differ from their manifests, with what is wrong. Reads all."""
    plan = run.plan()
    shards = plan.distill_shards()
    manifests = [(run.exchanges, run.scan_manifest(plan, shard)) for shard in range(len(plan.scan_shards))]
    manifests += [(run.objects, run.object_manifest(plan, shard)) for shard in shards]
    manifests += [(run.vectors, run.vector_manifest(plan, shard)) for shard in shards]
    checked = [(folder, check(folder, manifest)) for folder, manifest in manifests if manifest is not None]
    return [f"{folder.name}/{name}: {problem}" for folder, found in checked for name, problem in found]


def written_scripts(run: RunDir, config: Config, names: Sequence[str], extra: Sequence[str] = ()) -> dict[str, str]:
    """The text of each job, and of what they share, by file name. `extra` are further lines of settings.

    Raises ConfigError for an option that is none.
    """
    texts = {_STEP: (_TEMPLATES / _STEP).read_text()}
    for name in names:
        template = (_TEMPLATES / f"{name}.sbatch").read_text()
        drain_s = config.launcher.slurm.drain_s
        signal = f"#SBATCH --signal=B:USR1@{drain_s}\n" if drain_s else ""
        settings = "\n".join((*_settings(run, config), *extra, ""))
        header = "".join(f"#SBATCH {option}\n" for option in _options(run, config, name))
        text = template.replace(_SIGNAL, header + signal, 1).replace(_SETTINGS, settings, 1)
        texts[f"{name}.sbatch"] = text
    return texts


def sbatch_options(job: Job, numbers: dict[str, str]) -> list[str]:
    """What sbatch is told on its command line; `numbers` are those of the jobs submitted before, by name."""
    options = [f"--array={job.array}"] if job.array else []
    if job.after:
        kind, _, name = job.after.partition(":")
        # A job whose condition can never come true would wait for ever otherwise.
        options += [f"--dependency={kind}:{numbers.get(name, name.upper())}", "--kill-on-invalid-dep=yes"]
    return options


def submit_round(run: RunDir, config: Config, before: Round, missing: tuple[list[int], list[int]]) -> Round:
    """Submits the round after `before` from the scripts in RUN/slurm and records it.

    Where a job is refused those before it are cancelled. Raises SlurmError, UsageError without Slurm.
    """
    jobs, array, modulus = jobs_of_round(config, before.number + 1, before.max_array_size, missing)
    made = replace(before, number=before.number + 1, left=before.left - 1, jobs={}, array=array, modulus=modulus)
    record_round(run, made)  # before the jobs, for the merge job may start at once
    numbers: dict[str, str] = {}
    try:
        for job in jobs:
            script = run.path / FOLDER / f"{job.name}.sbatch"
            numbers[job.name] = sbatch.submit(script, sbatch_options(job, numbers), job.arguments)
    except BaseException:
        sbatch.cancel(list(numbers.values()))
        raise
    made = replace(made, jobs=numbers)
    record_round(run, made)
    return made


def asks_no_gpu(config: Config) -> bool:
    """Whether tasks with an engine that wants a GPU would get none, as far as the configuration shows."""
    slurm = config.launcher.slurm
    asked = any("gpu" in option or "gres" in option for option in (*slurm.options, *slurm.task_options))
    return config.engine.kind == "vllm" and not config.launcher.gpus_per_worker and not asked


def write_scripts(run: RunDir, texts: dict[str, str]) -> Path:
    """Puts the scripts into RUN/slurm; returns the folder."""
    folder = run.path / FOLDER
    make_dirs(folder)
    for name, text in texts.items():
        replace_file(folder / name, text.encode())
    return folder


def record_round(run: RunDir, made: Round) -> None:
    """Writes RUN/slurm/round-NNN.json."""
    replace_file(run.path / FOLDER / f"round-{made.number:03d}.json", canonical_json(made))


def last_round(run: RunDir) -> Round | None:
    """What was submitted last; None where nothing was. Raises ShardError for a damaged record."""
    return next(iter(last_rounds(run, 1)), None)


def last_rounds(run: RunDir, n: int) -> list[Round]:
    """The last `n` rounds, newest first. Raises ShardError for a damaged record."""
    paths = sorted((run.path / FOLDER).glob("round-*.json"), reverse=True)[:n]
    found = []
    for path in paths:
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=Round))
        except msgspec.MsgspecError as error:
            raise ShardError(f"{path} is damaged: {error}", hint="delete it, and submit again") from error
    return found


def submit_patiently(run: RunDir, config: Config, before: Round, missing: tuple[list[int], list[int]]) -> Round:
    """`submit_round` for a job that nobody watches: asks a busy controller again before it raises SlurmError."""
    for pause_s in RETRY_PAUSES_S:
        try:
            return submit_round(run, config, before, missing)
        except sbatch.SlurmError as error:
            print(f"{error}; again in {pause_s:.0f} s", file=sys.stderr)
            time.sleep(pause_s)
    return submit_round(run, config, before, missing)


def ray_settings(config_path: Path, overrides: Sequence[str], sources: Sequence[str], *, ungated: bool) -> list[str]:
    """Lines of settings for the Ray job, which runs `backfill run` on the configuration itself."""
    arguments = [word for override in overrides for word in ("--set", override)]
    arguments += [word for source in sources for word in ("--source", source)]
    arguments += ["--ungated"] if ungated else []
    return [
        f"CONFIG={shlex.quote(str(config_path.absolute()))}",
        f"ARGUMENTS=({shlex.join(arguments)})",
        # symmetric-run looks for `ray` on the PATH of every node.
        f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH",
    ]


def _options(run: RunDir, config: Config, name: str) -> list[str]:
    slurm = config.launcher.slurm
    tasks = name in (WORK, RAY)
    gpus, cpus = config.launcher.gpus_per_worker, config.launcher.cpus_per_worker
    own = {SCAN: slurm.scan_options, WORK: slurm.task_options, RAY: slurm.task_options, MERGE: slurm.merge_options}[
        name
    ]
    cores = config.scan.workers if name == SCAN else -int(-cpus // 1) if tasks else 1
    options = [
        shlex.quote(f"--chdir={Path.cwd()}"),
        shlex.quote(f"--output={run.logs}/slurm-%x-%{'A_%a' if name == WORK else 'j'}.out"),
        *([f"--cpus-per-task={cores}"] if cores > 1 else []),
        *([f"--gres=gpu:{-int(-gpus // 1)}"] if tasks and gpus else []),
        *slurm.options,
        *own,
    ]
    for option in (*slurm.options, *own):
        if not option.startswith("-") or not option.isprintable():
            raise ConfigError(f"launcher.slurm: {option!r} is no option of sbatch", hint="such as --partition=gpu")
    return options


def _settings(run: RunDir, config: Config) -> list[str]:
    slurm = config.launcher.slurm
    together = slurm.running or config.launcher.workers or 1
    command = slurm.command or shlex.join([sys.executable, "-P", "-m", "backfill.cli"])
    return [
        f"export RUN={shlex.quote(str(run.path))}",
        f"export BACKFILL_JOBS={shlex.quote(str(run.path / FOLDER))}",
        f"BACKFILL=({command})",
        f"BACKFILL_OFFLINE={int(slurm.offline)}",
        f'BACKFILL_CACHE_ROOT="{slurm.cache_root}"',
        *([f'BACKFILL_SCRATCH_ROOT="{slurm.scratch}"'] if slurm.scratch else []),
        # Seconds that a task waits, by its place among those that start together.
        f"BACKFILL_STAGGER_S=$((${{SLURM_ARRAY_TASK_ID:-0}} % {together} * {slurm.stagger_s}))",
        *slurm.setup,
    ]


def submit_ray(run: RunDir, before: Round, nodes: int) -> Round:
    """Submits RUN/slurm/ray.sbatch over so many nodes and records it. Raises SlurmError, UsageError without Slurm."""
    number = sbatch.submit(run.path / FOLDER / f"{RAY}.sbatch", [f"--nodes={nodes}"], ())
    made = replace(before, number=before.number + 1, left=0, jobs={RAY: number})
    record_round(run, made)
    return made
