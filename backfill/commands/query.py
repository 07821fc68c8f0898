"""Search a bundle: by meaning over distilled text, by word over the verbatim original, which is what you read.

Words in "double quotes" must occur literally. Filters apply before anything is ranked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from backfill.bundle import Bundle
from backfill.commands.printing import clean, clean_line, print_json, print_lines, print_warnings
from backfill.filters import Filters
from backfill.hits import Hit
from backfill.query import MODES, SearchResult, search

FIRST_CHARS = 2400
OTHER_CHARS = 500
ID_DIGITS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill query`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("text", metavar="TEXT", help="what to look for")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="how many exchanges (10)")
    parser.add_argument("--mode", default="default", help=f"one of {', '.join(MODES)}")
    parser.add_argument("--fusion", help="minmax or rrf; how the default mode joins its signals (the bundle's)")
    parser.add_argument("--project", help="name, last part of a path, or glob")
    parser.add_argument("--agent", help="the reader that took the transcript in, e.g. claude_code")
    parser.add_argument("--room", help="key or type:key")
    parser.add_argument("--file", metavar="GLOB", help="a file that the exchange touched or names")
    parser.add_argument("--since", metavar="DATE", help="from this day on (UTC)")
    parser.add_argument("--until", metavar="DATE", help="up to and with this day (UTC)")
    parser.add_argument("--tier", help="llm, extractive or raw")
    parser.add_argument("--kind", help="exchanges with a claim of this kind")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Searches and prints; exit code 0 also when nothing was found."""
    filters = Filters.parse(
        project=args.project,
        agent=args.agent,
        room=args.room,
        file=args.file,
        since=args.since,
        until=args.until,
        tier=args.tier,
        kind=args.kind,
    )
    bundle = Bundle.open(args.bundle, trust_encoder=args.trust_encoder)
    result = search(bundle, args.text, k=args.k, mode=args.mode, filters=filters, fusion=args.fusion)
    print_warnings(result.warnings)
    if args.json:
        print_json(result.to_tree())
    else:
        print_lines(_result_lines(result, args.bundle))
    return 0


def _result_lines(result: SearchResult, bundle: Path) -> Iterator[tuple[str, str]]:
    from backfill.indexes.tokenizer import tokenize

    terms = frozenset(tokenize(result.query))
    for rank, hit in enumerate(result.hits, 1):
        yield from _hit_lines(f"{rank}", hit, bundle, terms, FIRST_CHARS if rank == 1 else OTHER_CHARS)
        yield "", ""
    if not result.hits:
        yield "", "Nothing found."
        if result.closest_miss is not None:
            yield "", f"Closest miss ({result.closest_miss.note}):"
            yield from _hit_lines("-", result.closest_miss, bundle, terms, OTHER_CHARS)
    n_hits = f"{len(result.hits)} hit{'' if len(result.hits) == 1 else 's'}"
    yield "dim", f"{n_hits}, mode {result.mode}, {result.took_ms:.0f} ms"


def _hit_lines(rank: str, hit: Hit, bundle: Path, terms: frozenset[str], limit_chars: int) -> Iterator[tuple[str, str]]:
    day = (hit.started_at or "undated")[:10]
    where = clean_line(hit.project) or "no project"
    yield "bold", f"{rank:>2}. {day}  {where}  {hit.exchange_id[:ID_DIGITS]}  score {hit.score:.3f}"
    for style, text in (("green", hit.claim), ("cyan", hit.exchange_core), ("yellow", hit.specific_context)):
        if text:
            yield style, f"    {clean_line(text)}"
    names = [f"{what}: {', '.join(map(clean_line, items))}" for what, items in _lists(hit) if items]
    if names:
        yield "dim", f"    {'   '.join(names)}"
    yield from _verbatim("user", hit.user_text, hit, bundle, terms, OTHER_CHARS)
    yield from _verbatim("agent", hit.agent_text, hit, bundle, terms, limit_chars)


def _lists(hit: Hit) -> tuple[tuple[str, tuple[str, ...]], ...]:
    more = (f"and {len(hit.files) - 6} more",) if len(hit.files) > 6 else ()
    return ("rooms", hit.rooms), ("files", hit.files[:6] + more)


def _verbatim(
    who: str, text: str, hit: Hit, bundle: Path, terms: frozenset[str], limit_chars: int
) -> Iterator[tuple[str, str]]:
    from backfill.passages import best_passage

    passage = best_passage(clean(text), terms, limit_chars)
    lines = passage.text.split("\n") if passage.text.strip() else []
    if passage.cut_before:
        lines.insert(0, f"[... {passage.cut_before:,} characters cut before this]")
    if passage.cut_before or passage.cut_after:
        cut = passage.cut_before + passage.cut_after
        after = f"{passage.cut_after:,} of " if passage.cut_before else ""
        show = f"backfill show {clean_line(str(bundle))} {hit.exchange_id[:ID_DIGITS]} prints all"
        lines.append(f"[... {after}{cut:,} characters cut; {show}]")
    for number, line in enumerate(lines):
        yield "", f"    {who if number == 0 else '':>5} | {line}"
