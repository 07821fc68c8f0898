"""A labelled set becomes a bundle through the product's own run: its exchanges are taken as they are.

The scan shard is written here, from the documents; distilling, embedding, indexing and merging are those of `run`. One
document is one exchange, one scope one project. Claims and objects that the set brings replace the run's own.
Deliberately absent: cutting long documents into parts, for labels name documents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from backfill import ids, tables
from backfill.config import Config
from backfill.evaluation.corpus import Corpus, Document
from backfill.manifest import publish
from backfill.progress import Reporter
from backfill.rundir import RunDir, shard_fingerprint
from backfill.sources.result import UnitResult
from backfill.text import tokens_est
from backfill.types import (
    CLAIM_KINDS,
    Claim,
    ClaimKind,
    Exchange,
    FileAction,
    LedgerRow,
    Occurrence,
    PalaceObject,
    ToolCall,
)

AGENT = "corpus"
SOURCE = "corpus.jsonl"
_DAY_US = 86_400_000_000
_ACTION: FileAction = "edited"


@dataclass(frozen=True, slots=True)
class Placed:
    """A document as the rows that stand for it."""

    document: Document
    exchange: Exchange
    occurrence: Occurrence


def build_bundle(
    corpus: Corpus,
    folder: Path,
    out: Path,
    config: Config,
    reporter: Reporter,
    *,
    ungated: bool = False,
    cache: Path | None = None,
) -> Path:
    """Distills, embeds and indexes the set below `out`, resuming what is there; returns the bundle's folder.

    Raises what `run` raises: ConfigError for an engine without a gate's verdict, BackfillError where it fails.
    """
    from backfill.pipeline import run_all
    from backfill.scan import plan_scan

    config = replace(config, sources=(str(folder / SOURCE),))
    run = RunDir(out.absolute())
    run.make()
    placed = place(corpus.documents)
    _publish_scan(run, config, plan_scan, placed, (folder / SOURCE).stat().st_size)
    with _encoding_once(config, cache):
        run_all(config, run.path, folder, reporter, lambda: False, ungated=ungated)
        if corpus.claims or any(p.document.core for p in placed):
            _add_own(run, corpus, placed)
    return run.bundle


def _encoding_once(config: Config, cache: Path | None) -> AbstractContextManager[None]:
    """Embeds by the exported encoder and keeps the vectors, so that no text of an evaluation is encoded twice.

    One text at a time by onnxruntime also takes a third of the CPU time of padded batches by torch.
    """
    from backfill.embedders.onnx import OnnxEmbedder
    from backfill.encoders import export_encoder, using_embedder
    from backfill.evaluation.vector_cache import CachedEmbedder

    if config.embedder.device == "cuda":
        return nullcontext()
    encoder = OnnxEmbedder(export_encoder(config.embedder).files[0].parent)
    return using_embedder(config.embedder, CachedEmbedder(encoder, cache))


def place(documents: Sequence[Document]) -> list[Placed]:
    """The rows of each document, in order; a document follows the one before it in its scope and session."""
    before: dict[str, Exchange] = {}
    placed = []
    for number, document in enumerate(documents, 1):
        # A set without sessions has single entries, which follow nothing.
        session = f"{document.scope}/{document.session or document.doc_id}"
        exchange = _exchange(document, before.get(session))
        before[session] = exchange
        placed.append(Placed(document, exchange, _occurrence(document, exchange, session, number)))
    return placed


def _exchange(document: Document, before: Exchange | None) -> Exchange:
    tools = _tools(document)
    content = ids.content_id(document.user, document.agent, 0, tools)
    prev = before.content_id if before else None
    return Exchange(
        exchange_id=ids.exchange_id(content, prev),
        content_id=content,
        prev_content_id=prev,
        user_text=document.user,
        agent_text=document.agent,
        part=0,
        n_turns=2 if document.agent else 1,
        tokens_est=tokens_est(document.user, document.agent),
        thinking="",
        tools=tools,
    )


def _tools(document: Document) -> tuple[ToolCall, ...]:
    if not document.files:
        return ()
    digest = ids.args_digest({"files": list(document.files)})
    return (ToolCall("files", digest, document.files, tuple(_ACTION for _ in document.files)),)


def _occurrence(document: Document, exchange: Exchange, session: str, number: int) -> Occurrence:
    return Occurrence(
        agent=AGENT,
        session_id=session,
        anchor=document.doc_id,
        part=0,
        scan_version=1,
        open=False,
        n_records=number,
        exchange_id=exchange.exchange_id,
        source=SOURCE,
        byte_start=document.byte_start,
        byte_end=document.byte_end,
        parent_session="",
        project=document.scope,
        cwd="",
        branch="",
        title="",
        model="",
        started_at=document.date_us,
        ended_at=None,
        tz_assumed=True,
    )


def _publish_scan(
    run: RunDir, config: Config, plan_scan: Callable[..., object], placed: Sequence[Placed], size: int
) -> None:
    from backfill.totals import shard_stats

    plan_scan(run, config, config.sources)
    plan = run.plan()
    if run.scan_manifest(plan, 0) is not None:
        return
    exchanges = list({ids.row_hash(p.exchange): p.exchange for p in placed}.values())
    ledger = _ledger(placed, size, (run.path / SOURCE).name)
    result = UnitResult(AGENT, exchanges, [p.occurrence for p in placed], ledger)
    stats = shard_stats([result], plan.scan_shards[0].units, 0.0)
    writers: dict[tuple[str, str], Callable[[Path], int]] = {
        (table.name, ".parquet"): partial(tables.write_table, table, rows)
        for table, rows in (
            (tables.EXCHANGES, exchanges),
            (tables.OCCURRENCES, result.occurrences),
            (tables.LEDGER, ledger),
        )
    }
    publish(run.exchanges, "scan", 0, shard_fingerprint(plan, 0), writers, stats=stats)


def _ledger(placed: Sequence[Placed], size: int, source: str) -> list[LedgerRow]:
    """Tiles the file: each document reaches to the next one's start, so that blank lines belong to a neighbour."""
    starts = [0, *(p.document.byte_start for p in placed[1:])]
    ends = [*starts[1:], size]
    return [
        LedgerRow(source, start, end, 1, "part_of", "", p.exchange.exchange_id, bytes(16))
        for p, start, end in zip(placed, starts, ends, strict=True)
    ]


def _add_own(run: RunDir, corpus: Corpus, placed: Sequence[Placed]) -> None:
    """Writes the bundle again with the claims and objects that the set brings, as tier llm."""
    from backfill.compose import write_bundle
    from backfill.embed import embed_texts, object_texts
    from backfill.encoders import make_embedder
    from backfill.lineage import host_record
    from backfill.pipeline import input_of_run

    one = input_of_run(run.path)
    union = one.whole()
    claims = own_claims(corpus, placed)
    objects = own_objects(union.objects.values(), placed)
    texts = [claim.text for claim in claims]
    texts += [object_texts(row, (part,))[part] for row in objects for part in one.settings.parts]
    if claims:
        # The run's own stand in windows of their own, so that both would show.
        union.claims.clear()
    union.add("claims", claims)
    union.add("objects", objects)
    union.add_vectors(texts, embed_texts(make_embedder(run.plan().bound_config().embedder), texts))
    write_bundle(union, one.settings, one.encoder_files, run.bundle, {"kind": "corpus", **host_record()})


def own_claims(corpus: Corpus, placed: Sequence[Placed]) -> list[Claim]:
    """The set's claims as rows of the claims table; a window is the documents that share their first document."""
    at = {(p.document.scope, p.document.doc_id): p for p in placed}
    windows: dict[str, dict[bytes, int]] = defaultdict(dict)
    rows = []
    for claim in corpus.claims:
        holders = [at[claim.scope, doc_id] for doc_id in claim.doc_ids]
        first = holders[0].occurrence
        numbers = windows[first.session_id]
        window = numbers.setdefault(first.exchange_id, len(numbers))
        exchange_ids = tuple(dict.fromkeys(p.exchange.exchange_id for p in holders))
        kind: ClaimKind = next((kind for kind in CLAIM_KINDS if kind == claim.kind), "fact")
        date = None if claim.date_us is None else claim.date_us // _DAY_US
        rows.append(
            Claim(
                claim_id=ids.claim_id(claim.text, kind, date, exchange_ids),
                exchange_ids=exchange_ids,
                session_id=first.session_id,
                window=window,
                text=claim.text,
                kind=kind,
                date=date,
                tier="llm",
                generation=0,
                fingerprint=ids.fingerprint({"corpus": corpus.name}),
            )
        )
    return rows


def own_objects(made: Iterable[PalaceObject], placed: Sequence[Placed]) -> list[PalaceObject]:
    """The run's objects with the core and context that the set brings, where it brings them.

    A context that is no literal slice of the document's text is dropped: it could not be verified.
    """
    brought = {p.exchange.exchange_id: p.document for p in placed if p.document.core}
    rows = []
    for row in made:
        document = brought.get(row.exchange_id)
        if document is None:
            continue
        field, text = ("agent_text", document.agent) if document.context in document.agent else (
            "user_text", document.user)  # fmt: skip
        context = document.context if document.context in text else ""
        start = text.find(context) if context else 0
        rows.append(
            replace(
                row,
                exchange_core=document.core,
                specific_context=context,
                context_field=field,
                context_start=start,
                context_end=start + len(context),
                tier="llm",
                fingerprint=ids.fingerprint({"objects": "corpus"}),
                tokens=tokens_est(f"{document.core}\n{context}"),
                findings=(),
            )
        )
    return rows
