"""A labelled retrieval set on disk: corpus.jsonl, queries.jsonl, qrels.tsv, and claims.jsonl where it brings claims.

Documents are unique within their scope, and a query is ranked against documents of its scope only. Files come from
elsewhere: a broken line is an error that names its place. Deliberately absent: any use of unmasked text (`raw_text`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backfill.errors import UsageError

CATEGORIES = ("conceptual", "phrase", "exact term")

# "Caroline: ", "user: ": the label that opens a turn of a conversation written as lines.
_TURN = re.compile(r"[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*)?: \S")
_EXACT = re.compile(
    r"\w[./_\\:]\w|[a-z][A-Z]|\w-\w+-\w|--\w|\b[0-9a-f]{7,40}\b|\b[A-Z]{2,}\w*\d|#\d|\b\d+\.\d|`[^`]+`|\(\)"
)
_QUESTION = re.compile(
    r"^(?:what|when|where|who|whom|whose|which|why|how|is|are|was|were|do|does|did|can|could|should|would|will|has"
    r"|have|had)\b|\?\s*$",
    re.IGNORECASE,
)
_DATE_FORMATS = ("%I:%M %p on %d %B, %Y", "%Y-%m-%d", "%d %B %Y", "%Y/%m/%d")


@dataclass(frozen=True, slots=True)
class _Where:
    """A line of a file, for messages, and its bytes."""

    path: Path
    line: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Document:
    """One thing to find. `text` is what counts; `user` and `agent` are the same text as prompt and answer.

    `date_us` is microseconds since 1970 UTC, None where unknown; `turns` are the ids of the turns it was made of.
    `core` and `context` are a distilled object that the set brings, empty where it brings none. The document stands in
    bytes [byte_start, byte_end) of corpus.jsonl.
    """

    doc_id: str
    scope: str
    text: str
    user: str
    agent: str
    session: str = ""
    date_us: int | None = None
    files: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    core: str = ""
    context: str = ""
    byte_start: int = 0
    byte_end: int = 0


@dataclass(frozen=True, slots=True)
class Query:
    """A question with its category; `answer` and `evidence` where the set has them."""

    query_id: str
    text: str
    scope: str = ""
    category: str = ""
    answer: str = ""
    evidence: tuple[str, ...] = ()
    synthesised: bool = False


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """A claim that the set brings; `doc_ids` are the documents of its scope that hold one of its sources."""

    scope: str
    text: str
    doc_ids: tuple[str, ...]
    kind: str = "fact"
    date_us: int | None = None


@dataclass(frozen=True, slots=True)
class Corpus:
    """A set. `grades[query][doc]` is a grade, 0 where nothing is said."""

    name: str
    documents: tuple[Document, ...]
    queries: tuple[Query, ...]
    grades: Mapping[str, Mapping[str, float]]
    claims: tuple[SourceClaim, ...] = ()
    warnings: tuple[str, ...] = field(default=())


def read_corpus(folder: Path) -> Corpus:
    """The set in `folder`. Raises UsageError naming file and line where something is missing or contradicts itself."""
    documents = tuple(_document(row, where) for row, where in _rows(folder / "corpus.jsonl"))
    if not documents:
        raise UsageError(f"{folder / 'corpus.jsonl'} holds no document")
    seen: set[tuple[str, str]] = set()
    for document in documents:
        if (document.scope, document.doc_id) in seen:
            raise UsageError(f"{folder / 'corpus.jsonl'}: two documents of scope {document.scope!r} are called "
                             f"{document.doc_id!r}")  # fmt: skip
        seen.add((document.scope, document.doc_id))
    queries = read_queries(folder / "queries.jsonl")
    grades = read_grades(folder / "qrels.tsv")
    claims, warnings = _claims(folder, documents)
    documents, objects_warnings = _with_sister_objects(folder, documents)
    warnings += objects_warnings
    unknown = grades.keys() - {query.query_id for query in queries}
    if unknown:
        warnings.append(f"{len(unknown)} graded queries are not in queries.jsonl, such as {min(unknown)!r}")
    return Corpus(folder.name, documents, queries, grades, claims, tuple(warnings))


def read_queries(path: Path) -> tuple[Query, ...]:
    """Queries of a JSONL file (`id`, `text`, and optionally scope, category, answer, evidence)."""
    queries = tuple(_query(row, where) for row, where in _rows(path))
    ids = [query.query_id for query in queries]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise UsageError(f"{path}: two queries are called {twice!r}")
    return queries


def read_grades(path: Path) -> dict[str, dict[str, float]]:
    """Grades of a TSV file with the header `query doc grade`."""
    grades: dict[str, dict[str, float]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if not {"query", "doc", "grade"} <= set(reader.fieldnames or ()):
                raise UsageError(f"{path} lacks the header line: query, doc, grade (separated by tabs)")
            for number, row in enumerate(reader, 2):
                try:
                    grades.setdefault(row["query"], {})[row["doc"]] = float(row["grade"])
                except (TypeError, ValueError) as error:
                    raise UsageError(f"{path}, line {number}: the grade is no number") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text") from error
    return grades


def category_of(text: str) -> str:
    """The category of a query that states none, by a fixed rule.

    `exact term`: it holds an identifier, path, option, version, hash, number after a hash mark, or a code span;
    `conceptual`: else, it asks (opens with a question word or an auxiliary, or ends with a question mark);
    `phrase`: else.
    """
    if _EXACT.search(text):
        return "exact term"
    return "conceptual" if _QUESTION.search(text.strip()) else "phrase"


def parse_date(text: str) -> int | None:
    """Microseconds since 1970 UTC of an ISO time or one of a few written forms; None where it is neither."""
    moment: datetime | None = None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        for pattern in _DATE_FORMATS:
            try:
                moment = datetime.strptime(text.strip(), pattern).replace(tzinfo=UTC)
                break
            except ValueError:
                continue
    if moment is None:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], _Where]]:
    end = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, end = end, end + len(line)
                where = _Where(path, number, start, end)
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise UsageError(f"{where}: not JSON") from error
                if not isinstance(row, dict):
                    raise UsageError(f"{where}: not an object")
                yield row, where
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _text(row: Mapping[str, Any], key: str, where: _Where) -> str:
    value = row.get(key)
    if not isinstance(value, str | int) or isinstance(value, bool) or (isinstance(value, str) and not value):
        raise UsageError(f"{where}: {key!r} is missing or no text")
    return str(value).encode("utf-8", "replace").decode()


def _plain(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return "" if value is None or isinstance(value, dict | list) else str(value).encode("utf-8", "replace").decode()


def _names(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key)
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _document(row: Mapping[str, Any], where: _Where) -> Document:
    text = _text(row, "text", where)
    user, agent = _prompt_and_answer(row, text)
    return Document(
        doc_id=_text(row, "id", where),
        scope=_plain(row, "scope"),
        text=text,
        user=user,
        agent=agent,
        session=_plain(row, "session"),
        date_us=parse_date(_plain(row, "date")),
        files=_names(row, "files"),
        turns=_names(row, "turns"),
        core=_plain(row, "exchange_core"),
        context=_plain(row, "specific_context"),
        byte_start=where.start,
        byte_end=where.end,
    )


def _prompt_and_answer(row: Mapping[str, Any], text: str) -> tuple[str, str]:
    """`text` cut where the prompt ends. Masking blanks lines, so the prompt's number of lines says where that is."""
    user = _plain(row, "user")
    if user and isinstance(row.get("assistant"), str):
        lines = text.split("\n")
        n_lines = user.count("\n") + 1
        if len(lines) >= n_lines:
            return "\n".join(lines[:n_lines]), "\n".join(lines[n_lines:]).strip("\n")
    first, _, rest = text.partition("\n")
    if _TURN.match(first) and _TURN.match(rest):
        return first, rest
    return text, ""


def _query(row: Mapping[str, Any], where: _Where) -> Query:
    text = _text(row, "text", where)
    return Query(
        query_id=_text(row, "id", where),
        text=text,
        scope=_plain(row, "scope"),
        category=_plain(row, "category") or category_of(text),
        answer=_plain(row, "answer"),
        evidence=_names(row, "evidence"),
        synthesised=row.get("synthesised") is True,
    )


def _with_sister_objects(folder: Path, documents: tuple[Document, ...]) -> tuple[tuple[Document, ...], list[str]]:
    """Documents of a `_verbatim` set, with the `core` (else the `text`) of the same scope and id in its sister set.

    An object in the document itself goes before the sister's.
    """
    stem, _, unit = folder.name.rpartition("_")
    path = folder.parent / f"{stem}_distilled" / "corpus.jsonl"
    if unit != "verbatim" or not path.is_file():
        return documents, []
    cores = {
        (_plain(row, "scope"), _text(row, "id", where)): _plain(row, "core") or _text(row, "text", where)
        for row, where in _rows(path)
    }
    lost = len(cores.keys() - {(document.scope, document.doc_id) for document in documents})
    joined = tuple(
        document if document.core else replace(document, core=cores.get((document.scope, document.doc_id), ""))
        for document in documents
    )
    return joined, [f"{lost} objects of {stem}_distilled name no document of this set"] if lost else []


def _claims(folder: Path, documents: tuple[Document, ...]) -> tuple[tuple[SourceClaim, ...], list[str]]:
    """Claims that the set brings: claims.jsonl in its folder, or the observations of the sister set.

    Rows have `text`, `scope`, and `src`: ids of documents, or of the turns that documents list.
    """
    paths = [folder / "claims.jsonl"]
    stem, _, unit = folder.name.rpartition("_")
    if unit == "exchange":
        paths.append(folder.parent / f"{stem}_observation" / "corpus.jsonl")
    path = next((p for p in paths if p.is_file()), None)
    if path is None:
        return (), []
    holders: dict[tuple[str, str], str] = {}
    for document in documents:
        for name in (document.doc_id, *document.turns):
            holders.setdefault((document.scope, name), document.doc_id)
    claims, lost = [], 0
    for row, where in _rows(path):
        scope = _plain(row, "scope")
        found = dict.fromkeys(holders[scope, name] for name in _names(row, "src") if (scope, name) in holders)
        if not found:
            lost += 1
            continue
        kind = _plain(row, "kind") or "fact"
        claims.append(
            SourceClaim(scope, _text(row, "text", where), tuple(found), kind, parse_date(_plain(row, "date")))
        )
    return tuple(claims), [f"{lost} claims of {path.name} name no document of this set"] if lost else []
