"""What is interrupted: each scenario makes ready, acts, and must give the same canonical files however it got there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from backfill.bundle_writer import MANIFEST
from backfill.config import EngineConfig
from backfill.growth import add, forget
from backfill.ingest_config import ingest_for
from backfill.lifecycle import collect, earlier_states, rollback
from backfill.merge import merge
from backfill.sweep import sweep
from backfill.transport import export_bundle, import_bundle
from backfill.verify import verify_bundle
from backfill.verify_run import verify_run
from tests import fake_encoder
from tests.test_merge import canonical_files
from tests.test_pipeline import LINE, SAMPLES, TALK, config, go

SECOND = LINE % ("user", "which of our dashboards read the exported tables, and who owns them today?") + LINE % (
    "assistant",
    "Two do: billing-daily (owner Priya) and churn-weekly (owner Tomas); both read schema export_v3 since the 4th.",
)


@dataclass(frozen=True)
class Scenario:
    """`ready` fills an empty folder, `act` is what may be interrupted and is called again, `bundle` its result."""

    ready: Callable[[Path], None]
    act: Callable[[Path], None]
    bundle: str = "run/bundle"


def never() -> bool:
    return False


def settle_in(outside: Path) -> None:
    """Gives this process the encoder without a model. Called once in each child; nothing is put back."""
    patch = pytest.MonkeyPatch()
    outside.mkdir(exist_ok=True)
    fake_encoder.install(patch, outside)
    patch.setenv("BACKFILL_VECTOR_CACHE", str(outside / "vectors"))
    for module in ("growth", "sweep"):
        patch.setattr(f"backfill.{module}.bundle_encoder", lambda bundle: fake_encoder.HashEmbedder())


def problems(root: Path, scenario: Scenario, *, bundle_only: bool = False) -> list[str]:
    """What does not hold in the result."""
    bundle = root / scenario.bundle
    errors = verify_bundle(bundle).errors
    if (root / "run" / "plan.json").exists() and not bundle_only:
        errors = [*errors, *verify_run(root / "run").errors]
    return [f"{e.file}: {e.kind}: {e.detail}" for e in errors]


def result(root: Path, scenario: Scenario) -> dict[str, str]:
    """SHA-256 of every canonical file of the result."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in canonical_files(root / scenario.bundle).items()}


def _nothing(root: Path) -> None:
    pass


def _run(root: Path) -> None:
    go(config(SAMPLES / "openai", kind="scripted"), root / "run")


def _one(root: Path) -> None:
    source = root / "src"
    source.mkdir(exist_ok=True)
    (source / "a.jsonl").write_text(TALK)
    go(config(source), root / "run")
    (source / "b.jsonl").write_text(SECOND)


def _add(root: Path) -> None:
    bundle = root / "run" / "bundle"
    add(bundle, [root / "src" / "b.jsonl"], ingest_for(bundle, None, ()), never)


def _two(root: Path) -> None:
    _one(root)
    (root / "other").mkdir()
    (root / "other" / "c.jsonl").write_text(SECOND)
    go(config(root / "other"), root / "second")


def _merge(root: Path) -> None:
    def unread(path: Path) -> Any:
        raise AssertionError(path)

    merge([root / "run" / "bundle", root / "second" / "bundle"], root / "both", unread)


def _added(root: Path) -> None:
    _one(root)
    _add(root)


def _forget(root: Path) -> None:
    from backfill.inputs import read_bundle

    bundle = root / "run" / "bundle"
    rows = read_bundle(bundle).union.exchanges.values()
    forget(bundle, [min(row.exchange_id.hex() for row in rows)], "asked")


def _rollback(root: Path) -> None:
    bundle = root / "run" / "bundle"
    first = [state for state in earlier_states(bundle) if state.exchanges == 1]
    if first:
        rollback(bundle, first[0].manifest)


def _gc(root: Path) -> None:
    collect(root / "run" / "bundle")


def _sweep(root: Path) -> None:
    bundle = root / "run" / "bundle"
    made = ingest_for(bundle, None, ())
    changed = replace(made.config, engine=EngineConfig(kind="scripted"))
    sweep(bundle, replace(made, config=changed, engine=changed.engine, print_="f" * 32), never)


def _carry(root: Path) -> None:
    export_bundle(root / "run" / "bundle", root / "b.tar.zst")
    if not (root / "back" / MANIFEST).exists():
        import_bundle(root / "b.tar.zst", root / "back")


SCENARIOS = {
    "run": Scenario(_nothing, _run),
    "add": Scenario(_one, _add),
    "merge": Scenario(_two, _merge, "both"),
    "forget": Scenario(_added, _forget),
    "rollback": Scenario(_added, _rollback),
    "gc": Scenario(_added, _gc),
    "sweep": Scenario(_added, _sweep),
    "carry": Scenario(_added, _carry, "back"),
}
