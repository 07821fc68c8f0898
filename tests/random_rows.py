"""Random rows with few distinct ids, so that copies, growth and ties happen all the time."""

from __future__ import annotations

import hypothesis.strategies as st

from backfill.ids import claim_id, content_id, exchange_id, row_hash
from backfill.text import tokens_est
from backfill.types import (
    Claim,
    ClaimKind,
    Exchange,
    FileTouched,
    Finding,
    Occurrence,
    PalaceObject,
    RoomAssignment,
    Tombstone,
    ToolCall,
)

WORDS = ("raise the pool size", "use retries", "pg_dump failed", "ja, weiter", "好的", "timeout=15s")
CLAIMS = ("pool_size is 40 rows", "pool_size is 50 rows", "use retries", "pg_dump failed with exit code 3", "好的")
TIMES = (None, 1_772_000_000_000_000, 1_775_000_000_000_001, 1_781_000_000_000_000)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    user, agent = draw(st.sampled_from(WORDS)), draw(st.sampled_from(WORDS))
    output = draw(st.sampled_from(("", "ok", "ok and more")))
    tools = (ToolCall("Bash", b"d" * 16, ("a.py",), ("read",), "cat a.py", output),) if draw(st.booleans()) else ()
    content = content_id(user, agent, 0, tools)
    previous = draw(st.sampled_from((None, b"p" * 16)))
    return Exchange(
        exchange_id=exchange_id(content, previous),
        content_id=content,
        prev_content_id=previous,
        user_text=user,
        agent_text=agent,
        part=0,
        n_turns=2,
        tokens_est=tokens_est(user, agent),
        thinking=draw(st.sampled_from(("", "hm"))),
        tools=tools,
        text_paths=("a.py",),
    )


@st.composite
def occurrences(draw: st.DrawFn, ids: list[bytes]) -> Occurrence:
    start = draw(st.sampled_from((0, 100)))
    began = draw(st.sampled_from(TIMES))
    return Occurrence(
        agent=draw(st.sampled_from(("claude_code", "openai_messages"))),
        session_id=draw(st.sampled_from(("s1", "s2"))),
        anchor=draw(st.sampled_from(("u1", "u2", "u3"))),
        part=0,
        scan_version=draw(st.sampled_from((1, 2))),
        open=draw(st.booleans()),
        n_records=draw(st.integers(1, 4)),
        exchange_id=draw(st.sampled_from(ids)),
        source=draw(st.sampled_from(("a.jsonl", "b/a.jsonl"))),
        byte_start=start,
        byte_end=start + draw(st.sampled_from((50, 90))),
        parent_session="",
        project=draw(st.sampled_from(("ledgerline", ""))),
        cwd="",
        branch="main",
        title="",
        model="m",
        started_at=began,
        ended_at=began,
        tz_assumed=False,
    )


@st.composite
def objects(draw: st.DrawFn, sources: list[Exchange]) -> PalaceObject:
    source = draw(st.sampled_from(sources))
    core = draw(st.sampled_from(WORDS))
    end = draw(st.integers(0, len(source.user_text)))
    return PalaceObject(
        exchange_id=source.exchange_id,
        exchange_core=core,
        specific_context=source.user_text[:end],
        context_field="user_text",
        context_start=0,
        context_end=end,
        room_assignments=(RoomAssignment("concept", draw(st.sampled_from(("pool_size", "retries"))), "x", 1.0),),
        files_touched=(FileTouched("a.py", "read", "tool"),),
        tier=draw(st.sampled_from(("raw", "extractive", "llm"))),
        generation=draw(st.integers(0, 1)),
        fingerprint=draw(st.sampled_from(("f0", "f1"))),
        tokens=tokens_est(core, "\n", source.user_text[:end]),
        findings=draw(st.sampled_from(((), (Finding("dropped", "x", "exchange_core"),)))),
        source_row=row_hash(source),
    )


@st.composite
def claims(draw: st.DrawFn, ids: list[bytes]) -> Claim:
    provenance = tuple(sorted(set(draw(st.lists(st.sampled_from(ids), min_size=1, max_size=2)))))
    text, date = draw(st.sampled_from(CLAIMS)), draw(st.sampled_from((None, 20_500)))
    kind: ClaimKind = draw(st.sampled_from(("fact", "config")))
    return Claim(
        claim_id=claim_id(text, kind, date, provenance),
        exchange_ids=provenance,
        session_id=draw(st.sampled_from(("s1", "s2"))),
        window=draw(st.integers(0, 1)),
        text=text,
        kind=kind,
        date=date,
        tier=draw(st.sampled_from(("extractive", "llm"))),
        generation=draw(st.integers(0, 1)),
        fingerprint=draw(st.sampled_from(("f0", "f1"))),
        source=draw(st.sampled_from(("a.jsonl", "b/a.jsonl"))),
        reading=draw(st.sampled_from((1, 2))),
    )


@st.composite
def row_sets(draw: st.DrawFn) -> dict[str, list[object]]:
    """Tables whose references hold: every object's source row and every named exchange is there."""
    rows = draw(st.lists(exchanges(), min_size=1, max_size=8))
    ids = sorted({row.exchange_id for row in rows})
    made = draw(st.lists(objects(rows), max_size=8))
    have = {row.exchange_id for row in made}
    made += [draw(objects([row])) for row in rows if row.exchange_id not in have]
    return {
        "exchanges": list(rows),
        "occurrences": draw(st.lists(occurrences(ids), max_size=10)),
        "objects": list(made),
        "claims": draw(st.lists(claims(ids), max_size=8)),
        "tombstones": [Tombstone(xid, "asked") for xid in draw(st.lists(st.sampled_from(ids), max_size=1))],
    }
