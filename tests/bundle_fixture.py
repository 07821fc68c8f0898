"""A small bundle on disk, written by the layout alone: what the light side is tested against.

Three segments (2026-02, 2026-03, undated), an encoder of one word vector a word, hidden rows of every kind, claims and
verbatim vectors. Texts are ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill import ids, tables
from backfill.arrays import write_arrays
from backfill.embedders import card as cards
from backfill.embedders.onnx import OnnxEmbedder
from backfill.indexes.field import build_field
from backfill.indexes.tokenizer import TOKENIZER_VERSION
from backfill.links import claim_links, session_numbers
from backfill.rows import sort_rows
from backfill.text import tokens_est
from backfill.trust import encoder_digest
from backfill.types import (
    Claim,
    Exchange,
    FileTouched,
    Occurrence,
    PalaceObject,
    Room,
    RoomAssignment,
    Superseded,
    ToolCall,
)

DIM = 32
HIDDEN = "a hidden row must never be found"
RETRY_CLAIM = "The payment worker retries for 45 seconds."


@dataclass(frozen=True)
class Spec:
    """One exchange as the fixture tells it; the previous one of its session is the one listed before."""

    name: str
    session: str
    project: str
    day: str | None
    user: str
    agent: str
    core: str
    context: str = ""
    room: str = ""
    file: str = ""
    tier: str = "extractive"
    agent_name: str = "claude_code"


SPECS = (
    Spec(
        "retry", "s1", "shop/checkout", "2026-02-10T09:00:00",
        "The payment worker gives up after one failure. Can you add retries?",
        "I set retry_timeout to 45 seconds in src/payments/worker.py and added jittered backoff.\n"
        "The queue now survives a gateway outage of 10 minutes.",
        "Added retries with jittered backoff to the payment worker", "retry_timeout to 45 seconds",
        "concept:retry_timeout", "src/payments/worker.py", "llm",
    ),
    Spec(
        "yes1", "s1", "shop/checkout", "2026-02-10T09:05:00", "yes", "Committed the retry change as 4f2a.",
        "Committed the retry change", "4f2a", "workflow:commit",
    ),
    Spec(
        "migrate", "s2", "shop/api", "2026-03-02T14:00:00",
        "Why does the migration 0042 deadlock on postgres?",
        "Two transactions take row locks in opposite order: orders before stock, and stock before orders.\n"
        "I sorted the updates by primary key, so the deadlock is gone.",
        "Fixed the deadlock of migration 0042 by ordering row locks", "sorted the updates by primary key",
        "concept:lock_order", "db/migrations/0042_stock.sql", "llm",
    ),
    Spec(
        "yes2", "s2", "shop/api", "2026-03-02T14:10:00", "yes", "Applied migration 0042 on staging.",
        "Applied the migration on staging", "staging", "workflow:deploy",
    ),
    Spec(
        "parser", "s3", "tools/lint", "2026-03-31T23:59:59",
        "Parser crashes with UnicodeDecodeError on café.txt",
        "The file is latin-1. I read it with errors=replace now.\x1b[31m red \x1b[0m\u202e",
        "Made the parser read files that are not UTF-8", "errors=replace",
        "concept:file_encoding", "café.txt", "raw", "codex",
    ),
    Spec("nodate", "s4", "tools/lint", None, "Which licence do we ship?", "Apache-2.0, in the file LICENSE.", ""),
)  # fmt: skip


@dataclass
class Fixture:
    """Where the bundle lies and what is in it, by the names of the specs."""

    path: Path
    exchange: dict[str, Exchange] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def id(self, name: str) -> str:
        """The exchange's id in hex."""
        return self.exchange[name].exchange_id.hex()


def us(text: str | None) -> int | None:
    """Microseconds since 1970 of an ISO time in UTC."""
    return None if text is None else int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def write_bundle(
    path: Path,
    *,
    vectors: bool = True,
    claims: bool = True,
    specs: Sequence[Spec] = SPECS,
    links: bool = True,
    replaced: bool = False,
) -> Fixture:
    """Writes the bundle; without `vectors` it has no encoder and no vector files, without `links` no links in `docs`.

    With `replaced` a claim of 60 seconds, drawn from an exchange of each of two months, replaces that of 45.
    """  # fmt: skip
    fixture = Fixture(path)
    path.mkdir(parents=True)
    texts = [t for s in specs for t in (s.user, s.agent, s.core, s.context)]
    fixture.words = sorted({w for t in texts for w in "".join(c if c.isalnum() else " " for c in t.lower()).split()})
    encoder = write_encoder(path / "encoder", fixture.words) if vectors else None
    files: list[dict[str, Any]] = []
    segments: dict[str, list[tuple[Spec, Exchange]]] = {}
    last: dict[str, Exchange] = {}
    for spec in specs:
        row = _exchange(spec, last.get(spec.session))
        fixture.exchange[spec.name] = last[spec.session] = row
        segments.setdefault(spec.day[:7] if spec.day else "undated", []).append((spec, row))
    for name, members in sorted(segments.items()):
        extra = _replacing(fixture) if replaced and name == "2026-02" else []
        _write_segment(path, name, members, encoder, claims, files, links, extra)
    if replaced:
        old = _claim(specs[0], fixture.exchange["retry"], RETRY_CLAIM, "config")
        marks = [Superseded(old.claim_id, _replacing(fixture)[0].claim_id)]
        _table(path, "superseded", "", tables.SUPERSEDED, marks, files)
    rooms = _rooms(specs)
    _table(path, "rooms", "", tables.ROOMS, rooms, files)
    if vectors:
        for file in sorted((path / "encoder").iterdir()):
            _list(path, file, "encoder", 0, files)
    write_manifest(path, files, sorted(segments), encoder is not None)
    return fixture


def write_manifest(path: Path, files: list[dict[str, Any]], segments: list[str], vectors: bool) -> None:
    """manifest.json and manifest.sha256."""
    info = {
        "sha256": encoder_digest(path / "encoder") if vectors else "",
        "dim": DIM,
        "pooling": "mean",
        "prompts": {"query": "", "passage": ""},
        "probe_cosine_min": 0.999,
        "path": "encoder",
    }
    seal(
        path,
        {
            "format": 1,
            "logical_digest": "00" * 32,
            "counts": {"exchanges": sum(f["rows"] for f in files if f["role"] == "exchanges")},
            "files": sorted(files, key=lambda f: str(f["path"])),
            "segments": segments,
            "encoder": info if vectors else None,
            "bm25": {"tokenizer_version": TOKENIZER_VERSION, "k1": 1.5, "b": 0.75},
            "index": {"fusion": "weighted", "weights": {"bm25": 0.5, "vector": 0.5}, "depth": 200,
                      "parts": ["core", "context"]},
            "fingerprints": {"distill": ["f" * 32]},
            "gate": {},
        },
    )  # fmt: skip


def seal(path: Path, manifest: dict[str, Any]) -> None:
    """Writes a manifest and its checksum; tests change one and seal it again."""
    data = ids.canonical_json(manifest)
    (path / "manifest.json").write_bytes(data)
    (path / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def load(path: Path) -> dict[str, Any]:
    """The manifest as plain values."""
    tree: dict[str, Any] = json.loads((path / "manifest.json").read_bytes())
    return tree


def write_encoder(directory: Path, words: list[str]) -> OnnxEmbedder:
    """An ONNX encoder whose vector is the normalised mean of one random vector a word (unknown words: nothing)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    directory.mkdir()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    table = np.random.default_rng(7).normal(size=(len(special) + len(words), DIM)).astype(np.float32)
    table[: len(special)] = 1e-4
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["mask3"]),
        helper.make_node("Mul", ["tokens", "mask3"], ["masked"]),
        helper.make_node("ReduceMean", ["masked"], ["pooled"], axes=[1], keepdims=0),
        helper.make_node("LpNormalization", ["pooled"], ["out"], axis=1, p=2),
    ]
    ints = [helper.make_tensor_value_info(n, TensorProto.INT64, [1, "t"]) for n in ("input_ids", "attention_mask")]
    out = [helper.make_tensor_value_info("out", TensorProto.FLOAT, [1, DIM])]
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([2], np.int64), "last")]
    graph = helper.make_graph(nodes, "words", ints, out, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    (directory / cards.MODEL_NAME).write_bytes(model.SerializeToString())
    (directory / cards.VOCABULARY_NAME).write_text("\n".join([*special, *words]) + "\n")
    card = cards.EncoderCard(
        format=cards.CARD_FORMAT, dim=DIM, max_tokens=64, pooling="mean", prompts={}, tokenizer="wordpiece",
        lowercase=True, special_tokens=special, probe_cosine_min=0.999, source={"model": "words"},
        files={n: hashlib.sha256((directory / n).read_bytes()).hexdigest()
               for n in (cards.MODEL_NAME, cards.VOCABULARY_NAME)},
    )  # fmt: skip
    cards.write_json(directory / cards.CARD_NAME, card)
    encoder = OnnxEmbedder(directory)
    text = " ".join(words[:5])
    vector = encoder.encode([text], kind="query")[0].astype("<f2").tobytes().hex()
    probe = cards.write_json(directory / cards.PROBE_NAME, cards.Probe(text, vector))
    cards.write_json(directory / cards.CARD_NAME, _with_file(card, cards.PROBE_NAME, probe))
    return OnnxEmbedder(directory)


def _with_file(card: cards.EncoderCard, name: str, digest: str) -> cards.EncoderCard:
    import msgspec

    return msgspec.structs.replace(card, files={**card.files, name: digest})


def _exchange(spec: Spec, before: Exchange | None) -> Exchange:
    tools = (ToolCall("Edit", b"\1" * 16, (spec.file,), ("edited",), "edit", "ok", "", 0),) if spec.file else ()
    content = ids.content_id(spec.user, spec.agent, 0, tools)
    prev = before.content_id if before else None
    return Exchange(
        exchange_id=ids.exchange_id(content, prev), content_id=content, prev_content_id=prev, user_text=spec.user,
        agent_text=spec.agent, part=0, n_turns=2, tokens_est=tokens_est(spec.user, spec.agent), thinking="",
        tools=tools,
    )  # fmt: skip


def _occurrence(spec: Spec, row: Exchange, number: int) -> Occurrence:
    return Occurrence(
        agent=spec.agent_name, session_id=spec.session, anchor=f"a{number}", part=0, scan_version=1, open=False,
        n_records=number, exchange_id=row.exchange_id, source=f"{spec.session}.jsonl", byte_start=100 * number,
        byte_end=100 * number + 90, parent_session="", project=spec.project, cwd="", branch="main",
        title=f"title of {spec.session}", model="m", started_at=us(spec.day), ended_at=us(spec.day), tz_assumed=False,
    )  # fmt: skip


def _object(spec: Spec, row: Exchange) -> PalaceObject:
    kind, _, key = spec.room.partition(":")
    start = spec.agent.find(spec.context)
    return PalaceObject(
        exchange_id=row.exchange_id, exchange_core=spec.core, specific_context=spec.context,
        context_field="agent_text", context_start=start, context_end=start + len(spec.context),
        room_assignments=(RoomAssignment(kind, key, key.replace("_", " "), 1.0),) if key else (),  # type: ignore[arg-type]
        files_touched=(FileTouched(spec.file, "edited", "tool"),) if spec.file else (),
        tier=spec.tier,  # type: ignore[arg-type]
        generation=0, fingerprint="f" * 32, tokens=tokens_est(spec.core, spec.context), findings=(),
        source_row=ids.row_hash(row),
    )  # fmt: skip


def _claim(spec: Spec, row: Exchange, text: str, kind: str) -> Claim:
    return Claim(
        ids.claim_id(text, kind, None, [row.exchange_id]), (row.exchange_id,), spec.session, 0, text,
        kind,  # type: ignore[arg-type]
        (us(spec.day) or 0) // 86_400_000_000 if spec.day else None, "llm", 0, "f" * 32,
    )  # fmt: skip


def _replacing(fixture: Fixture) -> list[Claim]:
    """The claim that replaces the one about retries; its second exchange lies in another segment."""
    rows = [fixture.exchange["yes1"], fixture.exchange["yes2"]] if "yes2" in fixture.exchange else []
    ids_ = tuple(row.exchange_id for row in rows)
    text, day = "The payment worker retries for 60 seconds.", 20_516
    claim = Claim(ids.claim_id(text, "config", day, ids_), ids_, "s1", 1, text, "config", day, "llm", 0, "f" * 32)
    return [claim] if ids_ else []


def _write_segment(
    path: Path,
    name: str,
    members: list[tuple[Spec, Exchange]],
    encoder: OnnxEmbedder | None,
    with_claims: bool,
    files: list[dict[str, Any]],
    links: bool,
    extra: list[Claim],
) -> None:
    folder = f"seg/{name}"
    shown = dict(sorted(((row.exchange_id, (spec, row)) for spec, row in members), key=lambda pair: pair[0]))
    # Two rows of one id: the one with less text is never shown. And an exchange without any visible place.
    first = members[0][1]
    hidden = replace(first, exchange_id=b"\0" * 16, agent_text=HIDDEN)
    exchanges = sort_rows("exchanges", [*(row for _, row in members), replace(first, tools=()), hidden])
    occurrences = [_occurrence(spec, row, n) for n, (spec, row) in enumerate(members)]
    copies = [replace(o, session_id=f"{o.session_id}-copy", project="copies", started_at=None) for o in occurrences[:1]]
    stale = [replace(o, n_records=-1, project="stale") for o in occurrences[:1]]
    places = sort_rows("occurrences", [*occurrences, *copies, *stale])
    made = [_object(spec, row) for spec, row in members if spec.core]
    old = [replace(o, exchange_core=HIDDEN, tier="raw", generation=-1) for o in made]
    objects = sort_rows("objects", [*made, *old])
    claims = []
    if with_claims:
        for spec, row in members:
            if spec.name == "retry":
                claims.append(_claim(spec, row, RETRY_CLAIM, "config"))
                claims.append(replace(_claim(spec, row, HIDDEN, "fact"), generation=-1))
            if spec.name == "migrate":
                claims.append(_claim(spec, row, "Updates are sorted by primary key against deadlocks.", "decision"))
        claims = sort_rows("claims", [*claims, *extra])
    for table, rows in (
        (tables.EXCHANGES, exchanges), (tables.OCCURRENCES, places), (tables.OBJECTS, objects), (tables.CLAIMS, claims)
    ):  # fmt: skip
        _table(path, table.name, folder, table, rows, files)
    visible = [o for o in places if o not in stale]
    by_exchange = {
        xid: sorted(
            (places.index(o) for o in visible if o.exchange_id == xid),
            key=lambda n: (places[n].started_at is None, places[n].started_at or 0),
        )
        for xid in shown
    }
    of_object = {o.exchange_id: objects.index(o) for o in made}
    docs: dict[str, npt.NDArray[Any]] = {
        "exchange_row": np.array([exchanges.index(row) for _, row in shown.values()], "<i4"),
        "object_row": np.array([of_object.get(xid, -1) for xid in shown], "<i4"),
        "occ_indptr": np.cumsum([0, *(len(by_exchange[xid]) for xid in shown)], dtype="<i8"),
        "occ_row": np.array([n for xid in shown for n in by_exchange[xid]], "<i4"),
        "claim_row": np.array([n for n, c in enumerate(claims) if c.generation == 0], "<i4"),
    }
    if links:
        best = [places[by_exchange[xid][0]] for xid in shown]
        docs["exchange_id"] = np.frombuffer(b"".join(shown), np.uint8).reshape(-1, 16)
        docs["session"] = session_numbers((place.agent, place.session_id) for place in best)
        cells = [c.exchange_ids for c in claims if c.generation == 0]
        docs |= claim_links(cells, {xid: number for number, xid in enumerate(shown)})
    _arrays(path, "docs", folder, "docs", docs, len(shown), files)
    specs = [spec for spec, _ in shown.values()]
    for bm25, texts in {
        "verbatim": [f"{s.user}\n{s.agent}" for s in specs],
        "core": [s.core for s in specs],
        "context": [s.context for s in specs],
        **({"claims": [c.text for c in claims if c.generation == 0]} if with_claims else {}),
    }.items():
        _arrays(path, bm25, f"{folder}/bm25", f"bm25:{bm25}", build_field(texts), len(texts), files)
    if encoder is not None:
        _vectors(path, folder, "core", "distilled-core", encoder, [o.exchange_core for o in objects], files)
        _vectors(path, folder, "context", "distilled-context", encoder, [o.specific_context for o in objects], files)
        _vectors(path, folder, "verbatim", "verbatim", encoder, [e.agent_text for e in exchanges], files)
        rows = {"exchange_row": np.arange(len(exchanges), dtype="<i4")}
        _arrays(path, "verbatim-rows", folder, "vectors:verbatim:rows", rows, len(exchanges), files)
        if with_claims:
            _vectors(path, folder, "claims", "claims", encoder, [c.text for c in claims], files)


def _rooms(specs: Sequence[Spec]) -> list[Room]:
    rooms = []
    for spec in specs:
        kind, _, key = spec.room.partition(":")
        if key:
            label = key.replace("_", " ")
            rooms.append(Room(kind, key, label, spec.project, 1, us(spec.day), us(spec.day)))  # type: ignore[arg-type]
    return rooms


def _list(path: Path, file: Path, role: str, rows: int, files: list[dict[str, Any]]) -> None:
    data = file.read_bytes()
    files.append(
        {"path": file.relative_to(path).as_posix(), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(),
         "rows": rows, "role": role}
    )  # fmt: skip


def _place(path: Path, folder: str, name: str, suffix: str) -> Path:
    (path / folder).mkdir(parents=True, exist_ok=True)
    return path / folder / f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:8]}{suffix}"


def _table(path: Path, role: str, folder: str, table: Any, rows: Sequence[Any], files: list[dict[str, Any]]) -> None:
    file = _place(path, folder, role, ".parquet")
    _list(path, file, role, tables.write_table(table, rows, file), files)


def _arrays(
    path: Path, name: str, folder: str, role: str, arrays: dict[str, Any], rows: int, files: list[dict[str, Any]]
) -> None:
    file = _place(path, folder, name, ".arrays")
    write_arrays(file, arrays)
    _list(path, file, role, rows, files)


def _vectors(
    path: Path, folder: str, part: str, name: str, encoder: OnnxEmbedder, texts: list[str], files: list[dict[str, Any]]
) -> None:
    file = _place(path, folder, name, ".f16")
    file.write_bytes(encoder.encode(texts, kind="passage").astype("<f2").tobytes() if texts else b"")
    _list(path, file, f"vectors:{part}", len(texts), files)
