"""Who may work at a run folder: a process whose version, models and settings make what the plan wants.

Every stage has a fingerprint over its parts (stage version, tokenizer, weights, prompt, settings). The plan keeps both,
so a process that would make something else learns in which part it differs, before it makes anything. Deliberately
absent: hosts, batch sizes and library versions, which decide no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from backfill.errors import JoinRefused

if TYPE_CHECKING:
    from backfill.config import Config
    from backfill.rundir import Plan

MADE_BY = {"scan": ("scan",), "distill": ("distill", "claims"), "embed": ("embed",)}
_SHOWN = 40
_MISSING = "nothing"


def generation_fingerprint(config: Config, print_: str) -> str:
    """Distillation shards are kept apart by generation too, for it stands in their rows."""
    from backfill.ids import fingerprint

    return print_ if config.distill.generation == 0 else fingerprint({"of": print_, "gen": config.distill.generation})


def fingerprint_here(config: Config, kind: str) -> str:
    """What this process would stamp on results of a kind (scan, distill, claims, embed). Raises ModelError where a
    model is not here."""
    from backfill import encoders
    from backfill.distill import claims_fingerprint, distill_fingerprint
    from backfill.scan import scan_fingerprint

    if kind == "scan":
        return scan_fingerprint(config)
    if kind == "embed":
        return encoders.fingerprint_of_encoder(config.embedder)
    made_by = distill_fingerprint if kind == "distill" else claims_fingerprint
    return generation_fingerprint(config, made_by(config.distill, config.engine))


def parts_here(config: Config, kind: str) -> dict[str, Any]:
    """What that fingerprint is made of, by name."""
    from backfill import encoders
    from backfill.distill import claims_parts, distill_parts
    from backfill.extractive import EXTRACTIVE_VERSION
    from backfill.extractive_claims import EXTRACTIVE_CLAIMS_VERSION
    from backfill.scan import scan_parts

    if kind == "scan":
        return scan_parts(config)
    if kind == "embed":
        return encoders.encoder_parts(config.embedder)
    made = {"generation": config.distill.generation}
    if config.engine.kind == "extractive":
        version = EXTRACTIVE_VERSION if kind == "distill" else EXTRACTIVE_CLAIMS_VERSION
        return {**made, "engine": "extractive", "version": version, "min_tokens": config.distill.min_tokens}
    return {**made, **(distill_parts if kind == "distill" else claims_parts)(config.distill, config.engine)}


def settings_here(config: Config) -> dict[str, Any]:
    """All that decides the bundle of a run but its sources: two processes at one run folder must agree on it."""
    from backfill.config import to_tree

    parts = {kind: parts_here(config, kind) for kinds in MADE_BY.values() for kind in kinds}
    return {**parts, "products": list(config.distill.products), "index": to_tree(config.index)}


def check_may_join(plan: Plan, stage: str) -> None:
    """Raises JoinRefused where this process would not make what the plan wants of a stage (scan, distill, embed)."""
    config = plan.bound_config()
    wanted = {
        "scan": plan.scan_fingerprint,
        "distill": plan.distill_fingerprint,
        "claims": plan.claims_fingerprint,
        "embed": plan.embed_fingerprint,
    }
    for kind in MADE_BY[stage]:
        if not wanted[kind] or fingerprint_here(config, kind) == wanted[kind]:
            continue
        told = differences(plan.parts.get(kind, {}), parts_here(config, kind))
        raise JoinRefused(
            f"this process cannot join: its {kind} differs from the plan's in {'; '.join(told) or 'its fingerprint'}",
            hint="install the version and the model files that the run was planned with, or plan anew with "
            "`backfill run CONFIG`; shards of another fingerprint are kept apart, and nothing is lost",
        )


def differences(planned: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Which parts differ, as text: `engine.tokenizer (planned 1a2b..., here 3c4d...)`."""
    planned, here = dict(_flat(planned)), dict(_flat(here))
    told = []
    for name in sorted(planned.keys() | here.keys()):
        before, now = planned.get(name, _MISSING), here.get(name, _MISSING)
        if before != now:
            told.append(f"{name} (planned {_short(before)}, here {_short(now)})")
    return told


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:12]}..."
