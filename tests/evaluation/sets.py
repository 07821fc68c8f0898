"""Small labelled sets of our own, on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOPICS = ("payment retries", "login tokens", "image cache", "search index", "export job", "mail queue")


def write_set(
    folder: Path,
    documents: Sequence[dict[str, Any]],
    queries: Sequence[dict[str, Any]] = (),
    grades: Sequence[tuple[str, str, float]] = (),
) -> Path:
    """corpus.jsonl, queries.jsonl and qrels.tsv in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    rows = [f"{query}\t{doc}\t{grade}\n" for query, doc, grade in grades]
    (folder / "qrels.tsv").write_text("query\tdoc\tgrade\n" + "".join(rows))
    return folder


def small_set(folder: Path) -> Path:
    """Two scopes with the same document ids, six documents each; a query a document, graded 2 for it."""
    documents, queries, grades = [], [], []
    for scope in ("shop", "blog"):
        for number, topic in enumerate(TOPICS):
            user = f"the {topic} of the {scope} keep failing under load, can you look at why?"
            assistant = f"I raised {topic.split()[0]}_limit to {40 + number} in src/{scope}/{topic.split()[0]}.py."
            documents.append(
                {"id": f"d{number}", "scope": scope, "session": f"s{number // 3}", "user": user, "assistant": assistant,
                 "text": f"{user}\n\n{assistant}", "date": f"2026-02-0{number + 1}"}
            )  # fmt: skip
            queries.append({"id": f"{scope}-{number}", "scope": scope, "text": f"why did the {topic} fail"})
            grades.append((f"{scope}-{number}", f"d{number}", 2.0))
    return write_set(folder, documents, queries, grades)
