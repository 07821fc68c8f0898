"""`python bench/secrets_fp.py FOLDER [--show N]`: what the secret rules find in text that holds none.

Give it transcripts whose secrets have been taken out: every find is then a false positive. Prints finds per MB of
text searched, by type, with the commonest ones and their surroundings, and the cost of the search. What is shown comes
from the folder: mind where you paste it.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backfill.privacy.spans import KINDS, find

TEXT_FILES = {".md", ".txt", ".html"}
JSON_FILES = {".json", ".jsonl", ".traj"}


def texts(path: Path) -> Iterator[str]:
    """The strings of a file as a reader would see them: values of JSON, or the whole of a text."""
    data = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix in TEXT_FILES:
        yield data
    elif path.suffix in JSON_FILES:
        for line in data.split("\n") if path.suffix == ".jsonl" else [data]:
            try:
                yield from _strings(json.loads(line))
            except (ValueError, RecursionError):
                continue


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def main() -> None:
    """Search and print; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--show", type=int, default=15, help="so many of the commonest finds")
    parser.add_argument("--kind", help="only this type")
    args = parser.parse_args()
    kinds: Counter[str] = Counter()
    shapes: Counter[str] = Counter()
    seen: dict[str, str] = {}
    searched = seconds = 0.0
    known: set[int] = set()
    for path in sorted(p for p in args.folder.rglob("*") if p.is_file()):
        for text in texts(path):
            if hash(text) in known:  # copies of a history would count one find many times
                continue
            known.add(hash(text))
            searched += len(text) / 1e6
            started = time.process_time()
            found = find(text)
            seconds += time.process_time() - started
            for start, end, number in found:
                if args.kind and KINDS[number] != args.kind:
                    continue
                kinds[KINDS[number]] += 1
                around = text[max(0, start - 40) : end + 10].replace("\n", "\\n")
                shape = f"{KINDS[number]}: " + re.sub(r"\d+", "9", around)[:160]
                shapes[shape] += 1
                seen.setdefault(shape, around)
    for shape, n in shapes.most_common(args.show):
        print(f"{n:6d}  {shape.split(':')[0]:18s} {seen[shape][:220]}")
    print(f"{searched:.1f} MB of distinct strings, {seconds:.2f} s of CPU ({searched / max(seconds, 1e-9):.0f} MB/s)")
    for kind, n in kinds.most_common():
        print(f"{n:6d}  {n / searched:8.3f} per MB  {kind}")
    record = {"name": "secrets_fp", "value": round(sum(kinds.values()) / searched, 4), "unit": "finds/MB"}
    print(json.dumps(record | {"mb": round(searched, 1), "mb_s": round(searched / seconds, 1), "kinds": dict(kinds)}))


if __name__ == "__main__":
    main()
