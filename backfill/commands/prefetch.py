"""Fetch and prepare everything that a config's run needs from elsewhere: on a login node, before offline jobs.

The engine's model and the encoder land in the hub's cache (HF_HOME) or are found where they are, and the encoder's
export is made. Afterwards jobs run with HF_HUB_OFFLINE=1.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("config", type=Path, metavar="CONFIG")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code."""
    from backfill.config import load_config
    from backfill.encoders import export_encoder
    from backfill.engines.model_files import local_model
    from backfill.ids import canonical_json

    config = load_config(args.config, overrides=tuple(args.set))
    wanted = {config.engine.model} if config.engine.kind == "vllm" else set()
    if config.ingest.engine is not None and config.ingest.engine.kind == "vllm":
        wanted.add(config.ingest.engine.model)
    models = {name: str(local_model(name)) for name in sorted(wanted)}
    encoder = export_encoder(config.embedder)
    record = {"models": models, "encoder": {"model": config.embedder.model, **encoder.info}}
    if args.json:
        print(canonical_json(record).decode())
        return 0
    for name, path in models.items():
        print(f"model {name}: {path}")
    print(f"encoder {config.embedder.model}: {encoder.files[0].parent}")
    print("jobs without a network: set HF_HUB_OFFLINE=1, with the same HF_HOME and BACKFILL_CACHE as here")
    return 0
