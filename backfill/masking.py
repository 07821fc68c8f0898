"""Home directories out of a bundle that leaves the house: rows without them, ids made anew, contexts still literal.

A name of a home directory (`/home/NAME`, `/Users/NAME`, `C:\\Users\\NAME`) becomes `~`, wherever text or paths hold it.
Vectors are carried to the masked text: they differ by a path, and their encoder may not be at hand. Deliberately
absent: other personal data, which `scan.privacy` is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from backfill.chunks import verbatim_chunks
from backfill.embed import object_texts
from backfill.ids import claim_id, content_id, exchange_id, row_hash
from backfill.privacy import home_spans
from backfill.text import tokens_est
from backfill.types import Claim, Exchange, Occurrence, PalaceObject, ToolCall
from backfill.union import Union, text_hash
from backfill.verify import stored_text

_Path = TypeVar("_Path")


def mask(text: str) -> str:
    """The text with `~` for home directories."""
    out, at = [], 0
    for start, end in home_spans(text):
        out += [text[at:start], "~"]
        at = end
    return "".join([*out, text[at:]]) if out else text


def masked_union(union: Union, parts: Sequence[str]) -> Union:
    """The union with home directories masked; equal to it where it names none."""
    rows = {key: _exchange(row) for key, row in union.exchanges.items()}
    contents = {union.exchanges[key].content_id: row.content_id for key, row in rows.items()}
    ids: dict[bytes, bytes] = {}
    for key, row in rows.items():
        old = union.exchanges[key]
        previous = old.prev_content_id if old.prev_content_id is None else contents.get(old.prev_content_id)
        previous = old.prev_content_id if previous is None else previous
        rows[key] = replace(row, prev_content_id=previous, exchange_id=exchange_id(row.content_id, previous))
        ids[old.exchange_id] = rows[key].exchange_id
    out = Union()
    out.add("exchanges", rows.values())
    for key, row in rows.items():
        before, after = verbatim_chunks(union.exchanges[key]), verbatim_chunks(row)
        # Cut into fewer pieces than before, it has no vector for each, and so none.
        for was, now in zip(before, after, strict=True) if len(before) == len(after) else ():
            _carry(union, out, was, now)
    out.add("occurrences", [_occurrence(row, ids) for row in union.occurrences.values()])
    for made in union.objects.values():
        new = _object(made, union.exchanges[made.source_row], rows[made.source_row], ids)
        out.add("objects", [new])
        for part in parts:
            _carry(union, out, object_texts(made, (part,))[part], object_texts(new, (part,))[part])
    for claim in union.claims.values():
        new_claim = _claim(claim, ids)
        out.add("claims", [new_claim])
        _carry(union, out, claim.text, new_claim.text)
    hidden = union.tombstones.values()
    out.add("tombstones", [replace(t, exchange_id=ids.get(t.exchange_id, t.exchange_id)) for t in hidden])
    return out


def _carry(old: Union, new: Union, before: str, after: str) -> None:
    data = old.vectors.get(text_hash(before))
    if data is not None:
        key = text_hash(after)
        new.vectors[key] = max(data, new.vectors.get(key, b""))


def _exchange(row: Exchange) -> Exchange:
    tools = tuple(_tool(tool) for tool in row.tools)
    user, agent = mask(row.user_text), mask(row.agent_text)
    return replace(
        row,
        content_id=content_id(user, agent, row.part, tools),
        user_text=user,
        agent_text=agent,
        tokens_est=tokens_est(user, agent) if (user, agent) != (row.user_text, row.agent_text) else row.tokens_est,
        thinking=mask(row.thinking),
        tools=tools,
        text_paths=tuple(mask(path) for path in row.text_paths),
    )


def _tool(tool: ToolCall) -> ToolCall:
    return replace(
        tool,
        paths=tuple(mask(path) for path in tool.paths),
        input=mask(tool.input),
        head=mask(tool.head),
        tail=mask(tool.tail),
    )


def _occurrence(row: Occurrence, ids: dict[bytes, bytes]) -> Occurrence:
    return replace(
        row,
        exchange_id=ids.get(row.exchange_id, row.exchange_id),
        session_id=mask(row.session_id),
        parent_session=mask(row.parent_session),
        source=mask(row.source),
        project=mask(row.project),
        cwd=mask(row.cwd),
        branch=mask(row.branch),
        title=mask(row.title),
    )


def _object(made: PalaceObject, before: Exchange, after: Exchange, ids: dict[bytes, bytes]) -> PalaceObject:
    text = stored_text(before, made.context_field)
    start, end, context = made.context_start, made.context_end, made.specific_context
    if text is not None and home_spans(text):
        start, end = _moved(text, start, ends=False), _moved(text, end, ends=True)
        context = (stored_text(after, made.context_field) or "")[start:end]
    core = mask(made.exchange_core)
    changed = (core, context) != (made.exchange_core, made.specific_context)
    return replace(
        made,
        exchange_id=ids[made.exchange_id],
        exchange_core=core,
        specific_context=context,
        context_start=start,
        context_end=end,
        files_touched=tuple(replace(file, path=mask(file.path)) for file in made.files_touched),
        findings=tuple(replace(f, handle=mask(f.handle)) for f in made.findings),
        tokens=tokens_est(core, "\n", context) if changed else made.tokens,
        source_row=row_hash(after),
    )


def _moved(text: str, at: int, *, ends: bool) -> int:
    """Where the position `at` of a text lies in its masked form; one inside a masked name goes to its start or end."""
    shift = 0
    for start, end in home_spans(text):
        if end <= at:
            shift += end - start - 1
        elif start < at:
            return start - shift + (1 if ends else 0)
    return at - shift


def _claim(claim: Claim, ids: dict[bytes, bytes]) -> Claim:
    provenance = tuple(sorted(ids.get(xid, xid) for xid in claim.exchange_ids))
    text = mask(claim.text)
    return replace(
        claim,
        claim_id=claim_id(text, claim.kind, claim.date, provenance),
        exchange_ids=provenance,
        text=text,
        session_id=mask(claim.session_id),
        source=mask(claim.source),
    )
