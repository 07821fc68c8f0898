"""Judge engines over a fixed sample of exchanges: PASS, MARGINAL or FAIL, recorded beside each config.

The first answer counts, before any retry or fallback. `run`, `add`, `watch` and `sweep` want a PASS of an LLM engine.
Exits 1 where an engine fails.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backfill.config import Config, EngineConfig
    from backfill.gate_run import Judged

_COLUMNS = ("invented", "mangled", "dropped", "absence", "bloat", "secrets", "schema_failures")
_SHOWN_FINDINGS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("configs", nargs="+", type=Path, metavar="CONFIG", help="YAML files, one engine each")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="exchanges (more than there are: all)")
    parser.add_argument("--source", action="append", default=[], metavar="PATH", help="replaces `sources`; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")
    parser.add_argument("--no-record", action="store_true", help="write no verdict")
    parser.add_argument("--findings", action="store_true", help="show what was found, with the sentence")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 1 where an engine fails."""
    from backfill.commands.printing import print_json
    from backfill.config import load_config
    from backfill.errors import UsageError
    from backfill.gate import FAIL
    from backfill.gate_sample import sample_of
    from backfill.interrupts import StopFlag
    from backfill.progress import Reporter

    if args.sample < 1:
        raise UsageError(f"--sample {args.sample} is no number of exchanges")
    overrides, sources = tuple(args.set), tuple(args.source)
    configs = [load_config(path, overrides=overrides, sources=sources) for path in args.configs]
    stop = StopFlag().install()
    reporter = Reporter(quiet=args.json)
    sample = sample_of(configs, args.sample, stop)
    digest = sample.digest.hex()
    reporter.say(f"sample {digest}: {len(sample.rows):,} exchanges, {len(sample.windows):,} windows")
    engines = [
        _judged(args, path, config, engine, sample, digest, stop)
        for path, config in zip(args.configs, configs, strict=True)
        for engine in _engines(config)
    ]
    records = [record for record, _ in engines]
    if args.json:
        print_json({"sample_digest": digest, "engines": records})
    else:
        _print_table(records)
        if args.findings:
            _print_findings(engines)
    return 1 if any(record["verdict"] == FAIL for record in records) else 0


def _engines(config: Config) -> list[EngineConfig]:
    """The bulk engine, and that of `add` where it is another."""
    own = config.ingest.engine
    return [config.engine] if own is None or own == config.engine else [config.engine, own]


def _judged(
    args: argparse.Namespace, path: Path, config: Config, engine: EngineConfig, sample: Any, digest: str, stop: Any
) -> tuple[dict[str, Any], Judged]:
    from backfill.config import to_tree
    from backfill.distill import distill_fingerprint
    from backfill.gate import record
    from backfill.gate_run import engine_record, judge_engine
    from backfill.lineage import host_record

    print_ = distill_fingerprint(config.distill, engine)
    judged = judge_engine(config, engine, sample, stop)
    variant = (
        "" if config.distill.prompt == "hardened" or engine.kind == "extractive" else f" ({config.distill.prompt})"
    )
    name = f"{path.stem}: {engine.kind}{f' {engine.model}' if engine.model else ''}{variant}"
    found = engine_record(name, print_, judged)
    if not args.no_record:
        rules = {key: value for key, value in to_tree(config.gate).items() if key != "auditors"}
        tree = {**found, "sample_digest": digest, "rules": rules, **host_record()}
        record(path.absolute().parent, print_, tree)
    return found, judged


def _print_table(records: list[dict[str, Any]]) -> None:
    """Aligned columns without colour, so that a pipe gets what a terminal gets."""
    from backfill.commands.printing import clean_line

    counted = ("n", *_COLUMNS, "tokens_in", "tokens_out")
    rows = [["engine", *(name.replace("_", " ") for name in counted), "density", "ex/s", "verdict"]]
    for one in records:
        counts = [f"{one[name]:,}" for name in counted]
        rows.append([clean_line(one["name"]), *counts, f"{one['density']:.2f}", f"{one['ex_s']:.1f}", one["verdict"]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]))
    for one in records:
        for reason in one["reasons"]:
            print(f"{clean_line(one['name'])}: {clean_line(reason)}")


def _print_findings(engines: list[tuple[dict[str, Any], Judged]]) -> None:
    from backfill.commands.printing import clean_line

    for record, judged in engines:
        for kind, handle, text in judged.findings[:_SHOWN_FINDINGS]:
            print(f"{clean_line(record['name'])}: {kind} {clean_line(handle)!r} in {clean_line(text)!r}")
