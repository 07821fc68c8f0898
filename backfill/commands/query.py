"""Search a bundle: by meaning over distilled text, by word over the verbatim original, which is what you read.

Words in "double quotes" must occur literally; so must what follows `path:` (a file) and `error:` (a word). Filters
apply before anything is ranked.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from backfill.bundle import Bundle
from backfill.commands.printing import clean, clean_line, print_json, print_lines, print_warnings
from backfill.delivery import Passage
from backfill.filters import FilterOptions
from backfill.fusion import FUSIONS, NORMALIZATIONS
from backfill.hits import Hit
from backfill.query import MODES, SearchResult

FIRST_CHARS = 2_900
OTHER_CHARS = 1_000
_SHOWN_PLACES = 3
ID_DIGITS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill query`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("text", metavar="TEXT", help="what to look for")
    parser.add_argument("-k", type=int, default=10, metavar="N", help="how many exchanges (10)")
    parser.add_argument("--mode", default="default", help=f"one of {', '.join(MODES)}")
    parser.add_argument("--per-session", action="store_true", help="the best exchange of each session alone")
    parser.add_argument("--no-fold", action="store_true", help="near copies as hits of their own")
    parser.add_argument("--superseded", action="store_true", help="claims count that a later one replaced")
    parser.add_argument("--fusion", help=f"{', '.join(FUSIONS)}; how the default mode joins its signals (the bundle's)")
    parser.add_argument("--normalization", help=f"{', '.join(NORMALIZATIONS)}; how signals get on one scale")
    add_filters(parser)
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")


def add_filters(parser: argparse.ArgumentParser) -> None:
    """The filters, as every command that searches takes them."""
    parser.add_argument("--project", help="name, last part of a path, or glob")
    parser.add_argument("--agent", help="the reader that took the transcript in, e.g. claude_code")
    parser.add_argument("--room", help="key or type:key")
    parser.add_argument("--file", metavar="GLOB", help="a file that the exchange touched or names")
    parser.add_argument("--since", metavar="DATE", help="from this day on (UTC)")
    parser.add_argument("--until", metavar="DATE", help="up to and with this day (UTC)")
    parser.add_argument("--tier", help="llm, extractive or raw")
    parser.add_argument("--kind", help="exchanges with a claim of this kind")


def filters_of(args: argparse.Namespace) -> FilterOptions:
    """The filters that a command line gives."""
    return {
        "project": args.project,
        "agent": args.agent,
        "room": args.room,
        "file": args.file,
        "since": args.since,
        "until": args.until,
        "tier": args.tier,
        "kind": args.kind,
    }


def run(args: argparse.Namespace) -> int:
    """Searches and prints; exit code 0 also when nothing was found."""
    bundle = Bundle.open(args.bundle, trust_encoder=args.trust_encoder)
    chosen = {name: value for name in ("fusion", "normalization") if (value := getattr(args, name))}
    result = bundle.search(
        args.text,
        k=args.k,
        mode=args.mode,
        per_session=args.per_session,
        fold=not args.no_fold,
        superseded=args.superseded,
        settings=replace(bundle.manifest.index, **chosen),
        **filters_of(args),
    )
    print_warnings(result.warnings)
    if args.json:
        print_json(result.to_tree())
    else:
        print_lines(_result_lines(result, args.bundle))
    return 0


def _result_lines(result: SearchResult, bundle: Path) -> Iterator[tuple[str, str]]:
    for rank, hit in enumerate(result.hits, 1):
        yield from _hit_lines(f"{rank}", hit, bundle, result.passages(hit, FIRST_CHARS if rank == 1 else OTHER_CHARS))
        yield "", ""
    if not result.hits:
        yield "", "Nothing found."
        if (miss := result.closest_miss) is not None:
            yield "", f"Closest miss ({miss.note}):"
            yield from _hit_lines("-", miss, bundle, result.passages(miss, OTHER_CHARS))
    n_hits = f"{len(result.hits)} hit{'' if len(result.hits) == 1 else 's'}"
    yield "dim", f"{n_hits}, mode {result.mode}, {result.took_ms:.0f} ms"


def _hit_lines(rank: str, hit: Hit, bundle: Path, passages: Sequence[Passage]) -> Iterator[tuple[str, str]]:
    day = (hit.started_at or "undated")[:10]
    where = clean_line(hit.project) or "no project"
    yield "bold", f"{rank:>2}. {day}  {where}  {hit.exchange_id[:ID_DIGITS]}  score {hit.score:.3f}"
    for style, text in (("green", _claim(hit)), ("cyan", hit.exchange_core), ("yellow", hit.specific_context)):
        if text:
            yield style, f"    {clean_line(text)}"
    names = [f"{what}: {', '.join(map(clean_line, items))}" for what, items in _lists(hit) if items]
    if names:
        yield "dim", f"    {'   '.join(names)}"
    for passage in passages:
        yield from _verbatim(passage, f"backfill show {clean_line(str(bundle))} {hit.exchange_id[:ID_DIGITS]}")


def _claim(hit: Hit) -> str:
    claim = hit.found_claim
    if claim is None:
        return ""
    gone = f" (replaced by: {claim.replacement or claim.superseded_by})" if claim.superseded_by else ""
    return f"{claim.kind}, {claim.date or 'undated'}: {claim.text}{gone}"


def _lists(hit: Hit) -> tuple[tuple[str, tuple[str, ...]], ...]:
    more = (f"and {len(hit.files) - 6} more",) if len(hit.files) > 6 else ()
    others = [f"{p.project or 'no project'} {p.session_id} {(p.started_at or 'undated')[:10]}" for p in hit.places[1:]]
    further = (f"and {len(others) - _SHOWN_PLACES} more",) if len(others) > _SHOWN_PLACES else ()
    return (
        ("rooms", hit.rooms),
        ("files", hit.files[:6] + more),
        ("also in", (*others[:_SHOWN_PLACES], *further)),
        ("near copies", tuple(one[:ID_DIGITS] for one in hit.folded)),
    )


def _verbatim(passage: Passage, show: str) -> Iterator[tuple[str, str]]:
    who = passage.field.removesuffix("_text")
    for number, (style, line) in enumerate(passage_lines(passage, show)):
        yield style, f"    {who if number == 0 else '':>5} | {line}"


def passage_lines(passage: Passage, show: str) -> Iterator[tuple[str, str]]:
    """(style, line) of a passage, and around it how much is missing and the command that goes on there."""
    inside = " inside a sentence" if passage.inside else ""
    if passage.before is not None:
        yield "dim", f"[... {passage.start:,} characters cut{inside} before this; {show} --cursor {passage.before}]"
    for line in clean(passage.text.rstrip()).split("\n") if passage.text.strip() else ():
        yield "", line
    if passage.after is not None:
        missing = passage.total - passage.end
        yield "dim", f"[... {missing:,} characters cut{inside} after this; {show} --cursor {passage.after}]"
