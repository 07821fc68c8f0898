"""The run folder: RUN/plan.json, 01-exchanges, 02-objects, 03-vectors, bundle, logs.

The plan freezes what each shard holds by content: source units with their sizes, later the exchange rows of every
distillation round. Workers only read it; a process that coordinates the run revises it when sources grew. Numbers of
workers appear nowhere in it.

Every revision is a file of its own, plans/NNNNNN.json, published by `os.link`: of two processes that revise the same
plan the first wins and the second revises what the first made of it, so that nothing planned is ever lost. plan.json
is a copy of the newest for people and other programs; it may be behind for a moment, plans/ never is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from backfill.config import Config, bind
from backfill.durable import make_dirs, publish_file, replace_file
from backfill.errors import ShardError, UsageError
from backfill.ids import canonical_json, fingerprint
from backfill.manifest import ShardManifest, read_manifest

FORMAT = 1
PLAN = "plan.json"
REVISIONS = "plans"
OBJECT, CLAIMS = "objects", "claims"
EXCHANGES, OBJECTS, VECTORS, BUNDLE, LOGS = "01-exchanges", "02-objects", "03-vectors", "bundle", "logs"


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A further file of a unit, as it stood when it was planned."""

    source: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """One source file as it stood when it was planned; later bytes belong to a later round. `root` indexes roots.

    Where one session is spread over several files, `members` are the others, in the order in which they are read.
    """

    root: int
    source: str
    size_bytes: int
    mtime_ns: int
    members: tuple[PlannedFile, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """Planned size in bytes of every file of the unit, by source."""
        return {self.source: self.size_bytes} | {m.source: m.size_bytes for m in self.members}

    @property
    def total_bytes(self) -> int:
        """Planned size of all its files together."""
        return self.size_bytes + sum(m.size_bytes for m in self.members)


@dataclass(frozen=True, slots=True)
class ScanShard:
    """Source files that are read together."""

    units: tuple[PlannedUnit, ...]


@dataclass(frozen=True, slots=True)
class DistillRound:
    """Distillation shards over what scan shards [0, n_scan_shards) hold and no earlier round of the product had.

    Of the product `objects` these are exchange rows, of `claims` windows of sessions; `table` names the Parquet file
    in 02-objects that lists them. Shards are numbered through the rounds of both products. `content` is the digest of
    what was dealt out, in order.
    """

    first_shard: int
    n_shards: int
    n_scan_shards: int
    n_rows: int
    table: str
    sha256: str
    product: str = OBJECT
    content: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that workers need to know. `config` is the whole configuration as plain values, `parts` what the
    fingerprint of each stage is made of (`joining`), so that a worker that differs can be told in what."""

    config: dict[str, Any]
    scan_fingerprint: str
    roots: tuple[str, ...]
    scan_shards: tuple[ScanShard, ...]
    rounds: tuple[DistillRound, ...] = ()
    distill_fingerprint: str = ""
    embed_fingerprint: str = ""
    format: int = FORMAT
    warnings: tuple[str, ...] = field(default=())
    claims_fingerprint: str = ""
    revision: int = 0
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def n_distill_shards(self) -> int:
        """Number of distillation shards over all rounds."""
        return sum(r.n_shards for r in self.rounds)

    def distill_shards(self, *products: str) -> list[int]:
        """The distillation shards of the given products, or of those that the configuration asks for, in order."""
        wanted = products or self.bound_config().distill.products
        rounds = [r for r in self.rounds if r.product in wanted]
        return [shard for r in rounds for shard in range(r.first_shard, r.first_shard + r.n_shards)]

    def product_of(self, shard: int) -> str:
        """What a distillation shard makes: objects or claims. Raises ShardError for a shard of no round."""
        return self.round_of(shard).product

    def round_of(self, shard: int) -> DistillRound:
        """The round of a distillation shard. Raises ShardError for a shard of no round."""
        for r in self.rounds:
            if r.first_shard <= shard < r.first_shard + r.n_shards:
                return r
        raise ShardError(f"the plan has no distillation shard {shard}")

    def fingerprint_of(self, shard: int) -> str:
        """The fingerprint of a distillation shard: how it is made and of what; no other of its number counts as it."""
        one = self.round_of(shard)
        made = self.claims_fingerprint if one.product == CLAIMS else self.distill_fingerprint
        return fingerprint({"of": made, "content": one.content})

    def bound_config(self) -> Config:
        """The configuration as typed values."""
        return bind(Config, self.config, "plan.json: config")


class RunDir:
    """Paths and plan of one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.exchanges = path / EXCHANGES
        self.objects = path / OBJECTS
        self.vectors = path / VECTORS
        self.bundle = path / BUNDLE
        self.logs = path / LOGS

    def make(self) -> None:
        """Creates the folders. Raises UsageError when the place is taken by something that is no run."""
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is not a folder")
        if self.path.is_dir() and not self.has_plan() and any(self.path.iterdir()) and not self.exchanges.is_dir():
            raise UsageError(f"{self.path} is not empty and is no run folder", hint="choose another --out")
        for folder in (self.exchanges, self.objects, self.vectors, self.logs):
            make_dirs(folder)

    def has_plan(self) -> bool:
        """Whether a plan has been made."""
        return (self.path / PLAN).is_file()

    def plan(self) -> Plan:
        """The plan. Raises UsageError when there is none, ShardError when it cannot be trusted."""
        newest = max(self._revisions(), default=0)
        path = self._revision(newest) if newest else self.path / PLAN
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise UsageError(f"{self.path} is no run folder: it has no {PLAN}") from error
        try:
            plan = msgspec.json.decode(data, type=Plan)
        except msgspec.MsgspecError as error:
            raise ShardError(f"{path} is damaged or of another version: {error}") from error
        if plan.format != FORMAT:
            raise ShardError(f"{path} has format {plan.format}; this version reads {FORMAT}")
        return plan

    def create_plan(self, plan: Plan) -> bool:
        """Publishes the first plan; says whether it stands (another process may have been first)."""
        return publish_file(self.path / PLAN, canonical_json(plan))

    def revise_plan(self, change: Callable[[Plan], Plan]) -> Plan:
        """Publishes what `change` makes of the plan and returns it.

        `change` is called again on the newer plan where another process was first, and may give back what it got.
        """
        while True:
            plan = self.plan()
            changed = replace(change(plan), revision=plan.revision)
            if changed == plan:
                return plan
            changed = replace(changed, revision=plan.revision + 1)
            data = canonical_json(changed)
            make_dirs(self.path / REVISIONS)
            if publish_file(self._revision(changed.revision), data):
                replace_file(self.path / PLAN, data)
                return changed

    def _revision(self, number: int) -> Path:
        return self.path / REVISIONS / f"{number:06d}.json"

    def _revisions(self) -> list[int]:
        return [int(path.stem) for path in (self.path / REVISIONS).glob("[0-9]*.json")]

    def scan_manifest(self, plan: Plan, shard: int) -> ShardManifest | None:
        """Manifest of a scan shard, None while it is not done."""
        return read_manifest(self.exchanges, shard, shard_fingerprint(plan, shard))

    def object_manifest(self, plan: Plan, shard: int) -> ShardManifest | None:
        """Manifest of a distillation shard under the plan's engine, None while it is not done."""
        return read_manifest(self.objects, shard, plan.fingerprint_of(shard))

    def vector_manifest(self, plan: Plan, shard: int) -> ShardManifest | None:
        """Manifest of an embedding shard, None while it is not done."""
        return read_manifest(self.vectors, shard, vector_fingerprint(plan, shard))

    def scan_file(self, plan: Plan, shard: int, role: str) -> Path:
        """A data file of a scan shard. Raises ShardError when the shard is not done."""
        manifest = self.scan_manifest(plan, shard)
        if manifest is None:
            raise ShardError(f"scan shard {shard} is not done", hint="run `backfill scan` or `backfill run` first")
        return self.exchanges / manifest.file(role).name

    def missing(self, plan: Plan, stage: str) -> list[int]:
        """Shards of a stage (scan, distill, embed) whose manifest is not there, in order."""
        shards = range(len(plan.scan_shards)) if stage == "scan" else plan.distill_shards()
        return [shard for shard in shards if self.manifest_of(plan, stage, shard) is None]

    def manifest_of(self, plan: Plan, stage: str, shard: int) -> ShardManifest | None:
        """Manifest of a shard of a stage (scan, distill, embed), None while it is not done."""
        read = {"scan": self.scan_manifest, "distill": self.object_manifest, "embed": self.vector_manifest}[stage]
        return read(plan, shard)


def shard_fingerprint(plan: Plan, shard: int) -> str:
    """A scan shard depends on how files are read and on its own files: no other shard of its number counts as it."""
    units = plan.scan_shards[shard].units
    roots = [plan.roots[unit.root] for unit in units]
    return fingerprint({"scan": plan.scan_fingerprint, "roots": roots, "units": units})


def vector_fingerprint(plan: Plan, shard: int) -> str:
    """Vectors depend on the objects or claims they were made from and on the encoder."""
    return fingerprint({"objects": plan.fingerprint_of(shard), "encoder": plan.embed_fingerprint})
