"""The configuration of `add`, `sweep` and `watch`: a file that the caller names, or what the bundle was read with.

Without a file, scanning goes on as the bundle's run had it, so that equal files give equal rows, and distillation is
extractive: an engine that sends text somewhere is never taken from a bundle, which may be a stranger's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from backfill.bundle_writer import LINEAGE
from backfill.config import Config, DistillConfig, EngineConfig, ScanConfig, bind, load_config
from backfill.distill import claims_fingerprint, distill_fingerprint
from backfill.errors import ConfigError
from backfill.gate import verdict_of
from backfill.ingest import Ingest
from backfill.joining import generation_fingerprint

_SCAN = ("privacy", "assume_tz", "max_tool_bytes", "documents")
_DISTILL = ("products", "split_tokens", "min_tokens", "generation")


def ingest_for(
    bundle: Path,
    config_path: Path | None,
    overrides: tuple[str, ...],
    *,
    bulk: bool = False,
    ungated: bool = False,
    trust_encoder: bool = False,
) -> Ingest:
    """How to read and distill what comes into a bundle. `bulk` takes `engine`, else `ingest.engine` goes first.

    Raises ConfigError (exit code 2) for a bad file, or an LLM engine without a verdict.
    """
    if config_path is None and not overrides:
        config, folder = inherited(bundle), bundle
    elif config_path is None:
        raise ConfigError("--set wants --config", hint="name the YAML file that it changes")
    else:
        config, folder = load_config(config_path, overrides=overrides), config_path.absolute().parent
    engine = config.engine if bulk or config.ingest.engine is None else config.ingest.engine
    config = replace(config, engine=engine)
    print_ = distill_fingerprint(config.distill, engine)
    verdict = verdict_of(config, folder, print_, ungated=ungated)
    return Ingest(
        config,
        engine,
        generation_fingerprint(config, print_),
        generation_fingerprint(config, claims_fingerprint(config.distill, engine)),
        verdict,
        config.ingest.timeout_s,
        trust_encoder,
    )


def inherited(bundle: Path) -> Config:
    """Scan and distill settings of the latest run in the bundle's lineage; defaults where it names none.

    Of a recorded `privacy: off` nothing is taken: masking only ever grows stricter on the way in.
    """
    latest: tuple[str, dict[str, Any]] = ("", {})
    for path in (bundle / LINEAGE).glob("run-*.json"):
        try:
            record = msgspec.json.decode(path.read_bytes())
            if record.get("config"):
                latest = max(latest, (str(record.get("at", "")), record["config"]), key=lambda item: item[0])
        except (OSError, msgspec.MsgspecError, AttributeError):
            continue
    tree = latest[1]
    try:
        scan = bind(ScanConfig, _some(tree.get("scan"), _SCAN), "the bundle's lineage: scan")
        distill = bind(DistillConfig, _some(tree.get("distill"), _DISTILL), "the bundle's lineage: distill")
    except ConfigError:
        scan, distill = ScanConfig(), DistillConfig()
    if scan.privacy == "off":
        scan = replace(scan, privacy="secrets")
    return Config(engine=EngineConfig(kind="extractive"), scan=scan, distill=distill)


def _some(tree: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: tree[name] for name in names if name in tree} if isinstance(tree, dict) else {}
