"""Measure an engine's settings over a sample of your own transcripts: speed, cost and fidelity side by side.

By default one setting at a time is changed from what the config says (sequences, batch, prompt budget, speculative
decoding, structured-output backend), and at last the best of each together; --sweep KEY=V1,V2 names others, such as
engine.model. Each setting is written down once it is measured: the same command goes on after Ctrl-C. The sample is
sent to the engine. Exits 1 where nothing could be measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backfill.throughput.axes import Axis, Changes, Source

LEAST_SAMPLE = 100
_WIDTH = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a YAML file")
    parser.add_argument("--sweep", action="append", default=[], metavar="KEY.SUB=V1,V2",
                        help="values of one setting, in the place of the default sweep; repeatable")  # fmt: skip
    parser.add_argument("--grid", action="store_true", help="all combinations, not one change at a time")
    parser.add_argument("--sample", type=int, default=0, metavar="N",
                        help="exchanges and windows (default: 100, or three windows of the widest engine)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="DIR", help="results and page (default: RUN-bench)")
    parser.add_argument("--source", action="append", default=[], metavar="PATH", help="replaces `sources`; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY.SUB=VALUE", help="overrides one setting")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns 1 where nothing could be measured."""
    from backfill.commands.printing import print_json
    from backfill.errors import UsageError
    from backfill.interrupts import StopFlag
    from backfill.progress import Reporter
    from backfill.throughput.axes import Source, cells, default_axes, parse_axis
    from backfill.throughput.measure import sample_of

    if args.sample < 0:
        raise UsageError(f"--sample {args.sample} is no number of exchanges")
    source = Source(args.config, tuple(args.set), tuple(args.source))
    config = source.load({})
    axes = [parse_axis(text) for text in args.sweep] or default_axes(config)
    planned = cells(source, axes, grid=args.grid)
    stop = StopFlag().install()
    reporter = Reporter(quiet=args.json)
    sample = sample_of(config, args.sample or _sample_size(source, planned))
    reporter.say(f"{len(planned)} settings over {len(sample.rows):,} exchanges and {len(sample.windows):,} windows")
    out = args.out or Path(f"{config.run}-bench")
    record = _swept(source, axes, planned, sample, out, stop, reporter, combine=not args.grid and not args.sweep)
    if args.json:
        print_json(record)
    else:
        _print(record)
    return 0 if record["recommended"] else 1


def _sample_size(source: Source, planned: Sequence[Changes]) -> int:
    """Three windows of the widest engine: fewer cannot keep it full for long enough to time it."""
    from backfill.engines import make_engine
    from backfill.errors import ModelError

    widest = 0
    for changes in planned:
        config = source.load(changes)
        try:
            widest = max(widest, 0 if config.engine.kind == "extractive" else make_engine(config.engine).window)
        except ModelError:
            continue  # its cell will say so
    return max(LEAST_SAMPLE, 3 * widest)


def _swept(
    source: Source,
    axes: Sequence[Axis],
    planned: Sequence[Changes],
    sample: Any,
    out: Path,
    stop: Any,
    reporter: Any,
    *,
    combine: bool,
) -> dict[str, Any]:
    """Measures, and writes results and page after every cell, so that an interrupted sweep leaves both."""
    from backfill.errors import Interrupted
    from backfill.throughput.measure import Measured
    from backfill.throughput.sweep import sweep

    done: list[Measured] = []

    def keep(cell: Measured) -> None:
        done.append(cell)
        _write(source, axes, done, sample, out, finished=False)

    try:
        sweep(source, planned, sample, out, stop, reporter.say, keep, combine=combine)
    except Interrupted as stopped:
        hint = f"the same command goes on; what is done is in {out / 'bench.html'}" if done else "nothing is done yet"
        raise Interrupted(f"stopped after {len(done)} settings", hint=hint) from stopped
    return _write(source, axes, done, sample, out, finished=True)


def _write(
    source: Source, axes: Sequence[Axis], done: Sequence[Any], sample: Any, out: Path, *, finished: bool
) -> dict[str, Any]:
    import msgspec

    from backfill.durable import make_dirs, replace_file
    from backfill.throughput.axes import setting
    from backfill.throughput.page import page, points_of
    from backfill.throughput.record import record_of

    record = record_of(done, sample, source.path.name, out, finished=finished)
    own = {axis.key: setting(source.load({}), axis.key) for axis in axes}
    make_dirs(out)
    replace_file(out / "bench.html", page(record, points_of(record["cells"], own)).encode())
    replace_file(out / "bench.json", msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    return record


def _print(record: dict[str, Any]) -> None:
    """The table and the recommendation; what a pipe gets is as wide as it must be."""
    import shlex
    import sys

    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from backfill.commands.printing import clean_line
    from backfill.throughput.record import COLUMNS, rows_of

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(COLUMNS):
        last = i == len(COLUMNS) - 1
        table.add_column(name, justify="left" if i == 0 or last else "right", overflow="fold")
    for row in rows_of(record):
        table.add_row(*(Text(clean_line(cell)) for cell in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
    console.print(table)
    found = record["recommended"]
    if found is None:
        console.print("No setting could be measured.", markup=False)
        return
    said = f"Recommended: {found['name']}. {found['reason'][0].upper()}{found['reason'][1:]}."
    console.print(clean_line(said), markup=False, soft_wrap=True)
    if found["changes"]:
        words = " ".join(f"--set {shlex.quote(f'{key}={value}')}" for key, value in found["changes"].items())
        console.print(clean_line(f"To take it: {words}"), markup=False, soft_wrap=True)
    console.print(clean_line(f"Page: {record['page']}"), markup=False, soft_wrap=True)
