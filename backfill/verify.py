"""`verify`: does a bundle or a run folder still hold what was written into it?

All checksums are compared before anything is loaded; then ids are recomputed from the verbatim text, every literal
context is compared with its slice, and everything derived (what is visible, the digest, the document lists) is derived
again. Light: reads through `bundle`, so a laptop can run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.ann_files import cards_of
from backfill.bundle import Bundle, Segment, read_manifest
from backfill.chunks import VERBATIM_ROWS, VERBATIM_VECTORS, keys_of, verbatim_chunks
from backfill.columns import ParquetFile
from backfill.durable import sha256_file
from backfill.errors import BackfillError
from backfill.ids import content_id, exchange_id, row_hash
from backfill.joined_words import KIND as WORDS
from backfill.rows import ROW_TYPES, refuse_odd, rows_of, sort_rows
from backfill.sums import SEGMENT_TABLES, segment_sums
from backfill.types import Exchange, PalaceObject
from backfill.union import Union, View, logical_digest, segments_of, view_of
from backfill.verify_claims import claim_problems

_SUMS = re.compile(rb"([0-9a-f]{64}  manifest\.json\n){1,2}")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that does not hold: the file (relative), the kind of fault, and what was seen."""

    file: str
    kind: str
    detail: str


@dataclass(slots=True)
class Verdict:
    """The `verify --json` record."""

    errors: list[Problem] = field(default_factory=list)
    ledger_balanced: bool | None = None
    probe_cosine: float | None = None
    ann_recall10: float | None = None
    warnings: list[str] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {"ok": not self.errors, **asdict(self)}


def verify_bundle(path: Path, *, trust_encoder: bool = False) -> Verdict:
    """Checks a bundle; never loads a file whose checksum is off."""
    verdict = Verdict()
    try:
        verdict.errors += checksum_problems(path)
        if verdict.errors:
            return verdict
        bundle = Bundle.open(path, trust_encoder=trust_encoder)
        verdict.ledger_balanced = _ledger_balanced(path)
        verdict.errors += _content_problems(bundle)
        verdict.probe_cosine = _probe(bundle, verdict)
        found = [card.recall10 for card, *_ in cards_of(path, bundle.manifest) if card.kind != WORDS]
        verdict.ann_recall10 = min(found, default=None)
    except BackfillError as error:
        verdict.errors.append(Problem(str(path), "unreadable", str(error)))
    return verdict


def checksum_problems(path: Path) -> list[Problem]:
    """Every file of a bundle whose bytes are not those that its manifest, or its own name, promises."""
    problems: list[Problem] = []
    try:
        manifest = read_manifest(path)
    except (BackfillError, OSError) as error:
        return [Problem("manifest.json", "manifest", str(error))]
    for entry in manifest.files:
        file = path / entry.path
        if not file.is_file() or file.is_symlink():
            problems.append(Problem(entry.path, "missing", "the manifest names it, but it is not there"))
        elif file.stat().st_size != entry.bytes:
            problems.append(Problem(entry.path, "size", f"{file.stat().st_size} bytes, {entry.bytes} were written"))
        elif sha256_file(file) != entry.sha256:
            problems.append(Problem(entry.path, "checksum", "SHA-256 differs from the manifest"))
    if not _SUMS.fullmatch((path / "manifest.sha256").read_bytes()):
        problems.append(
            Problem("manifest.sha256", "checksum", "is not one or two lines of a SHA-256 and manifest.json")
        )
    listed = {path / entry.path for entry in manifest.files} | {path / "manifest.json", path / "manifest.sha256"}
    for file in sorted(p for p in path.rglob("*") if p.is_file() and p not in listed):
        relative = file.relative_to(path).as_posix()
        if not file.name.startswith(".") and not relative.startswith("tmp-") and not _fits_its_name(file):
            problems.append(
                Problem(relative, "checksum", "the manifest does not list it and its name does not vouch for it")
            )
    return problems


def _fits_its_name(file: Path) -> bool:
    """Whether a file of an earlier state, or of lineage, has the SHA-256 whose first digits end its name."""
    promised = file.stem.rsplit("-", 1)[-1]
    return len(promised) >= 8 and sha256_file(file).startswith(promised)


def read_rows(segment: Segment, table: str) -> list[Any]:
    """All rows of a table of a segment. Raises BundleError for a value that is none of its kind."""
    columns = segment.table(table).read(list(ROW_TYPES[table].__slots__))
    return refuse_odd(table, lambda: rows_of(table, columns), f"segment {segment.name}")


def check_ids(row: Exchange) -> str:
    """What is wrong with the ids of an exchange row; empty when they are those of its text."""
    if content_id(row.user_text, row.agent_text, row.part, row.tools) != row.content_id:
        return "content_id is not that of its text"
    if exchange_id(row.content_id, row.prev_content_id) != row.exchange_id:
        return "exchange_id is not that of its content"
    return ""


def context_holds(row: PalaceObject, exchange: Exchange) -> bool:
    """Whether specific_context equals the slice of the stored text that it names."""
    text = stored_text(exchange, row.context_field)
    return text is not None and text[row.context_start : row.context_end] == row.specific_context


def stored_text(exchange: Exchange, name: str) -> str | None:
    """The stored text of a context_field: user_text, agent_text, tools.N.head or tools.N.tail; None for any other."""
    if name in ("user_text", "agent_text"):
        return str(getattr(exchange, name))
    kind, _, rest = name.partition(".")
    number, _, end = rest.partition(".")
    if kind != "tools" or end not in ("head", "tail") or not number.isdecimal() or int(number) >= len(exchange.tools):
        return None
    return str(getattr(exchange.tools[int(number)], end))


def _content_problems(bundle: Bundle) -> Iterator[Problem]:
    union = Union()
    for segment in bundle.segments:
        rows = {table: read_rows(segment, table) for table in ("exchanges", "occurrences", "objects", "claims")}
        for table, found in rows.items():
            union.add(table, found)
            if found != sort_rows(table, found):
                yield Problem(segment.files[table].path, "order", "rows are not distinct and in canonical order")
    entry = bundle.files.get("tombstones")
    if entry:
        columns = ParquetFile(bundle.path / entry.path).read(list(ROW_TYPES["tombstones"].__slots__))
        union.add("tombstones", rows_of("tombstones", columns))
    yield from _row_problems(union)
    view = view_of(union)
    digest = logical_digest(view, union.tombstones.values())
    if digest != bundle.manifest.logical_digest:
        yield Problem("manifest.json", "digest", f"logical_digest is {digest} of the rows")
    yield from _segment_problems(bundle, union, view)
    for fault in claim_problems(bundle, union, view):
        yield Problem(*fault)


def _row_problems(union: Union) -> Iterator[Problem]:
    by_hash = union.exchanges
    ids = {row.exchange_id for row in by_hash.values()}
    for row in by_hash.values():
        problem = check_ids(row)
        if problem:
            yield Problem("exchanges", "id", f"{row.exchange_id.hex()}: {problem}")
    for place in union.occurrences.values():
        if place.exchange_id not in ids:
            yield Problem("occurrences", "reference", f"names exchange {place.exchange_id.hex()}, which is not there")
    with_object = set()
    for made in union.objects.values():
        xid = made.exchange_id.hex()
        with_object.add(made.exchange_id)
        source = by_hash.get(made.source_row)
        if source is None or source.exchange_id != made.exchange_id:
            yield Problem("objects", "reference", f"{xid}: the row it was made from is not there")
        elif not context_holds(made, source):
            yield Problem("objects", "context", f"{xid}: {made.context_field} does not hold the context")
    for bare in sorted(ids - with_object):
        yield Problem("objects", "reference", f"exchange {bare.hex()} has no object")


def _segment_problems(bundle: Bundle, union: Union, view: View) -> Iterator[Problem]:
    months = segments_of(union)
    for segment in bundle.segments:
        exchanges = read_rows(segment, "exchanges")
        objects = read_rows(segment, "objects")
        where = f"seg/{segment.name}"
        misplaced = sum(months[row.exchange_id] != segment.name for row in exchanges)
        if misplaced:
            yield Problem(where, "segment", f"{misplaced} exchange rows belong to another month")
        docs = segment.docs
        shown = [row_hash(exchanges[i]) for i in docs.exchange_row]
        here = {row.exchange_id for row in exchanges}
        wanted = [row_hash(view.exchanges[xid]) for xid in sorted(here) if xid in view.exchanges]
        if shown != wanted:
            yield Problem(segment.files["docs"].path, "visibility", "the documents are not the visible exchanges")
            continue
        ids = [exchanges[i].exchange_id for i in docs.exchange_row]
        if [segment.document_id(doc) for doc in range(len(docs))] != ids:
            yield Problem(segment.files["docs"].path, "visibility", "the ids are not those of the documents")
        for doc, i in enumerate(docs.object_row):
            row = view.objects.get(exchanges[docs.exchange_row[doc]].exchange_id)
            if row != (objects[i] if i >= 0 else None):
                yield Problem(segment.files["docs"].path, "visibility", f"document {doc} shows another object")
                break
        yield from _vector_problems(bundle, segment, len(objects))
        yield from _verbatim_problems(bundle, segment)
        yield from _sum_problems(bundle, segment)


def _sum_problems(bundle: Bundle, segment: Segment) -> Iterator[Problem]:
    """Whether the segment's `sums`, which a merge relies on, are those of its rows."""
    import numpy as np

    if not segment.has("sums"):
        return
    rows = {table: read_rows(segment, table) for table in SEGMENT_TABLES}
    docs = {name: getattr(segment.docs, name) for name in ("exchange_row", "object_row", "occ_row", "claim_row")}
    wanted = segment_sums(rows, docs, bundle.manifest.index.parts if bundle.manifest.encoder else ())
    found = segment.arrays("sums")
    if found.keys() != wanted.keys() or any(not np.array_equal(found[name], wanted[name]) for name in wanted):
        yield Problem(segment.files["sums"].path, "sums", "are not those of the segment's rows")


def _vector_problems(bundle: Bundle, segment: Segment, n_objects: int) -> Iterator[Problem]:
    encoder = bundle.manifest.encoder
    for part in bundle.manifest.index.parts if encoder else ():
        role = f"vectors:{part}"
        entry = segment.files.get(role)
        if entry is None or encoder is None or entry.rows != n_objects:
            yield Problem(f"seg/{segment.name}", "vectors", f"{role} does not have a row for each object")
            continue
        if not _unit(segment.vectors(role, encoder.dim)):
            yield Problem(entry.path, "vectors", "a row is no unit vector")


def _verbatim_problems(bundle: Bundle, segment: Segment) -> Iterator[Problem]:
    """Whether the vectors of verbatim text belong to the pieces of the exchanges that they name."""
    import numpy as np

    encoder = bundle.manifest.encoder
    if encoder is None or not segment.has(VERBATIM_VECTORS):
        return
    entry = segment.files[VERBATIM_VECTORS]
    places = segment.arrays(VERBATIM_ROWS) if segment.has(VERBATIM_ROWS) else {}
    exchanges = read_rows(segment, "exchanges")
    named, keys = places.get("exchange_row"), places.get("key")
    if named is None or keys is None or not len(named) == len(keys) == entry.rows:
        yield Problem(entry.path, "vectors", "there is not a place for each vector")
        return
    rows = dict.fromkeys(named.tolist())
    if any(not 0 <= row < len(exchanges) for row in rows):
        yield Problem(entry.path, "vectors", "a vector belongs to no exchange")
        return
    wanted = [(row, chunk) for row in rows for chunk in verbatim_chunks(exchanges[row])]
    if named.tolist() != [row for row, _ in wanted] or not np.array_equal(keys, keys_of([text for _, text in wanted])):
        yield Problem(entry.path, "vectors", "the vectors are not those of the exchanges' pieces")
    elif not _unit(segment.vectors(VERBATIM_VECTORS, encoder.dim)):
        yield Problem(entry.path, "vectors", "a row is no unit vector")


def _unit(rows: Any) -> bool:
    """Whether all rows have the length one or are zero."""
    import numpy as np

    norms = np.linalg.norm(rows.astype(np.float32), axis=1)
    return bool(((np.abs(norms - 1) < 1e-2) | (norms == 0)).all())


def _probe(bundle: Bundle, verdict: Verdict) -> float | None:
    if bundle.manifest.encoder is None:
        return None
    encoder, reason = bundle.encoder()
    if encoder is None:
        verdict.warnings.append(f"the encoder was not tried: {reason}")
        return None
    from backfill.embedders.onnx import probe_cosine

    cosine = probe_cosine(encoder, bundle.path / bundle.manifest.encoder.path)
    if cosine < bundle.manifest.encoder.probe_cosine_min:
        verdict.errors.append(Problem("encoder", "probe", f"the probe text's vector has cosine {cosine:.5f}"))
    return cosine


def _ledger_balanced(path: Path) -> bool | None:
    """Whether every run that the lineage names had a balanced ledger; None where it names none."""
    verdicts = []
    for file in (path / "lineage").glob("run-*.json"):
        ledger = msgspec.json.decode(file.read_bytes()).get("ledger")
        if ledger:
            verdicts.append(bool(ledger["balanced"]))
    return all(verdicts) if verdicts else None
