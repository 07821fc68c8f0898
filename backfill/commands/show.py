"""One exchange whole: its verbatim text, tool calls, object, claims, places, and what came before and after.

With --cursor or --limit its verbatim text alone, in pages of whole lines and sentences.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backfill.bundle import Bundle
from backfill.commands.printing import clean, clean_line, print_json, print_lines
from backfill.commands.query import passage_lines
from backfill.delivery import PAGE_CHARS, ExchangePage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill show`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("exchange_id", metavar="EXCHANGE_ID", help="hex; 6 or more digits that no other id starts with")
    parser.add_argument("--cursor", help="the text from where an answer or an earlier page was cut")
    parser.add_argument("--limit", type=int, metavar="CHARS", help="characters a page (8,000)")
    parser.add_argument("--query", default="", metavar="TEXT", help="the page around these words")
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout")


def run(args: argparse.Namespace) -> int:
    """Prints the exchange; an unknown id is bad usage."""
    bundle = Bundle.open(args.bundle)
    if args.cursor or args.limit or args.query:
        page = bundle.read(args.exchange_id, query=args.query, cursor=args.cursor, limit_chars=args.limit or PAGE_CHARS)
        if args.json:
            print_json(page.to_tree())
        else:
            print_lines(_page_lines(page, f"backfill show {clean_line(str(args.bundle))} {args.exchange_id}"))
        return 0
    tree = bundle.exchange(args.exchange_id).to_tree()
    if args.json:
        print_json(tree)
    else:
        print_lines(_lines(tree))
    return 0


def _page_lines(page: ExchangePage, show: str) -> Iterator[tuple[str, str]]:
    for passage in page.passages:
        yield "bold", f"{passage.field}:"
        yield from passage_lines(passage, show)
        yield "", ""
    if page.cursor is not None:
        yield "dim", f"more: {show} --cursor {page.cursor}"


def _lines(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    exchange = tree["exchange"]
    yield "bold", f"exchange {exchange['exchange_id']}  part {exchange['part']}"
    for place in tree["occurrences"]:
        when = place["started_at"] or "undated"
        where = f"{place['source']} bytes {place['byte_start']:,} to {place['byte_end']:,}"
        yield "dim", clean_line(f"{when}  {place['project']}  {place['agent']} {place['session_id']}  {where}")
    if tree["object"]:
        yield from _object_lines(tree["object"])
    for claim in tree["claims"]:
        gone = f", replaced by: {claim['replacement']}" if claim["superseded_by"] else ""
        yield "green", clean_line(f"claim ({claim['kind']}, {claim['date'] or 'undated'}): {claim['text']}{gone}")
    yield from _block("user", exchange["user_text"])
    yield from _block("agent", exchange["agent_text"])
    for tool in exchange["tools"]:
        yield from _block(f"tool {clean_line(tool['name'])}", "\n".join(filter(None, _tool_texts(tool))))
    for what in ("prev", "next"):
        for other in tree[what]:
            yield "dim", clean_line(f"{what}: {other['exchange_id'][:12]}  {other['exchange_core']}")


def _object_lines(palace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "cyan", clean_line(f"{palace['tier']}: {palace['exchange_core']}")
    if palace["specific_context"]:
        yield "yellow", clean_line(palace["specific_context"])
    rooms = ", ".join(f"{room['room_type']}:{room['room_key']}" for room in palace["room_assignments"])
    files = ", ".join(f"{touched['path']} ({touched['action']})" for touched in palace["files_touched"])
    for name, text in (("rooms", rooms), ("files", files)):
        if text:
            yield "dim", clean_line(f"{name}: {text}")


def _tool_texts(tool: dict[str, Any]) -> tuple[str, ...]:
    cut = f"[... {tool['cut_bytes']:,} bytes not stored]" if tool["cut_bytes"] else ""
    return tool["input"], tool["head"], cut, tool["tail"]


def _block(title: str, text: str) -> Iterator[tuple[str, str]]:
    yield "", ""
    yield "bold", f"{title}:"
    for line in clean(text).split("\n"):
        yield "", line
