"""Core rows: what the tables hold, as frozen dataclasses.

One class per table of the bundle and per nested struct; field order is column order. Ids are 16 raw bytes, times are
integers in microseconds since 1970-01-01 UTC (`None` where unknown). Deliberately absent: free-form metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tier: TypeAlias = Literal["llm", "extractive", "raw"]
RoomType: TypeAlias = Literal["file", "concept", "workflow"]
FileAction: TypeAlias = Literal["deleted", "created", "edited", "read", "referenced"]
FileOrigin: TypeAlias = Literal["tool", "text"]
LedgerState: TypeAlias = Literal["part_of", "duplicate", "skipped", "quarantined", "pending", "container"]
ClaimKind: TypeAlias = Literal["decision", "fact", "config", "howto", "incident", "status", "preference"]

TIER_RANK: dict[str, int] = {"raw": 0, "extractive": 1, "llm": 2}
ACTION_RANK: dict[str, int] = {"referenced": 0, "read": 1, "edited": 2, "created": 3, "deleted": 4}
ROOM_TYPES: tuple[RoomType, ...] = ("file", "concept", "workflow")
CLAIM_KINDS: tuple[ClaimKind, ...] = ("decision", "fact", "config", "howto", "incident", "status", "preference")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of an exchange and the ends of its result.

    `args_digest` is BLAKE2b-128 of the canonical JSON of the arguments. `paths` and `actions` run in parallel: the
    files that the call names and what it did to them, relative to the working directory where they lie below it.
    `head` and `tail` are the first and last part of the result, `cut_bytes` the UTF-8 bytes left out between them;
    `input` is the readable part of the arguments (a command, a query), capped.
    """

    name: str
    args_digest: bytes
    paths: tuple[str, ...] = ()
    actions: tuple[FileAction, ...] = ()
    input: str = ""
    head: str = ""
    tail: str = ""
    cut_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Exchange:
    """A user message and all the agent did until the next one, or one part of a long one. Content only.

    `text_paths` are the files that the visible text names, relative to the working directory where they lie below
    it. `tokens_est` is ceil(UTF-8 bytes / 4) of user_text and agent_text together.
    """

    exchange_id: bytes
    content_id: bytes
    prev_content_id: bytes | None
    user_text: str
    agent_text: str
    part: int
    n_turns: int
    tokens_est: int
    thinking: str
    tools: tuple[ToolCall, ...]
    text_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A place where an exchange stands. Every field depends only on the file's bytes up to the exchange's end.

    Key: (agent, session_id, anchor, part). `n_records` counts the records of the session that were read when this
    state of the exchange was settled; it only grows as the file grows, so the newest reading is the greatest.
    """

    agent: str
    session_id: str
    anchor: str
    part: int
    scan_version: int
    open: bool
    n_records: int
    exchange_id: bytes
    source: str
    byte_start: int
    byte_end: int
    parent_session: str
    project: str
    cwd: str
    branch: str
    title: str
    model: str
    started_at: int | None
    ended_at: int | None
    tz_assumed: bool


@dataclass(frozen=True, slots=True)
class RoomAssignment:
    """A room that an exchange belongs to; `relevance` must be exact in float32 (1, 0.75, 0.5)."""

    room_type: RoomType
    room_key: str
    room_label: str
    relevance: float


@dataclass(frozen=True, slots=True)
class FileTouched:
    """A file with the strongest thing that was done to it in the exchange."""

    path: str
    action: FileAction
    origin: FileOrigin


@dataclass(frozen=True, slots=True)
class Finding:
    """What a fidelity check found: `kind` (invented, mangled, ...), the handle, and the field it stands in."""

    kind: str
    handle: str
    field: str


@dataclass(frozen=True, slots=True)
class PalaceObject:
    """The distilled form of one exchange row.

    `specific_context` equals the stored text of `context_field` sliced by code points
    [`context_start`:`context_end`]. `source_row` is the row hash of the exchange row it was made from: of several
    rows with one exchange_id the slice holds in that one. `tokens` is tokens_est of the distilled text.
    """

    exchange_id: bytes
    exchange_core: str
    specific_context: str
    context_field: str
    context_start: int
    context_end: int
    room_assignments: tuple[RoomAssignment, ...]
    files_touched: tuple[FileTouched, ...]
    tier: Tier
    generation: int
    fingerprint: str
    tokens: int
    findings: tuple[Finding, ...]
    source_row: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """An atomic, dated, self-contained statement distilled from a window of a session. `date` is days since epoch.

    `source` is the source unit whose session was cut into windows. `reading` orders readings of one window: it is
    greater when more of the session was read (`windows.Window.reading`).
    """

    claim_id: bytes
    exchange_ids: tuple[bytes, ...]
    session_id: str
    window: int
    text: str
    kind: ClaimKind
    date: int | None
    tier: Tier
    generation: int
    fingerprint: str
    source: str = ""
    reading: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """A room of the palace, derived from the visible objects."""

    room_type: RoomType
    room_key: str
    room_label: str
    project: str
    n_exchanges: int
    first_at: int | None
    last_at: int | None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """A run of bytes of one source and what became of it.

    `file_digest` is BLAKE2b-128 of the bytes that were read: rows of one (source, file_digest) tile the file.
    """

    source: str
    byte_start: int
    byte_end: int
    n_records: int
    state: LedgerState
    reason: str
    ref: bytes | None
    file_digest: bytes


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Hides an exchange in this and every later merge."""

    exchange_id: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later claim of the same subject and kind that replaces an earlier one. Derived."""

    claim_id: bytes
    superseded_by: bytes


Row: TypeAlias = Exchange | Occurrence | PalaceObject | Claim | Room | LedgerRow | Tombstone | Superseded
