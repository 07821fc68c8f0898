"""What is ranked: the visible exchanges of a bundle with their texts, and the names that labels know them by.

Everything is read once into memory (about 3 KB an exchange). A document of a labelled set is named by its own id,
which the bundle keeps as the occurrence's anchor; any other exchange by its id in hex.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from backfill.bundle import Bundle, Segment
from backfill.claim_index import claim_index
from backfill.evaluation.corpus import Query
from backfill.evaluation.ingest import AGENT

Units = npt.NDArray[np.int64]
FIELDS = ("verbatim", "prompt", "core", "context", "rooms", "files", "title")


@dataclass(frozen=True, slots=True)
class Group:
    """The queries of one scope and what they are ranked against.

    `queries` are positions in the list of queries; `names` [N] the documents, `docs` [N] their exchanges.
    """

    scope: str
    queries: Units
    names: tuple[str, ...]
    docs: Units


@dataclass(frozen=True)
class Collection:
    """D exchanges. `texts[field]` are D texts; `claims` are texts with the exchanges [*] that each came from."""

    exchange_ids: tuple[bytes, ...]
    texts: Mapping[str, tuple[str, ...]]
    session_of: Units
    places: tuple[tuple[tuple[str, str, str], ...], ...]
    claims: tuple[tuple[str, Units], ...]

    def __len__(self) -> int:
        return len(self.exchange_ids)

    @cached_property
    def n_tokens(self) -> dict[str, npt.NDArray[np.int64]]:
        """tokens_est [D] of the verbatim and of the distilled text."""
        from backfill.text import tokens_est

        distilled = [f"{a}\n{b}" for a, b in zip(self.texts["core"], self.texts["context"], strict=True)]
        pairs = (("verbatim", self.texts["verbatim"]), ("distilled", distilled))
        return {name: np.array([tokens_est(t) for t in texts], np.int64) for name, texts in pairs}

    @cached_property
    def claims_of(self) -> Mapping[int, tuple[str, ...]]:
        """The texts of each document's claims; without documents that have none."""
        found: dict[int, list[str]] = defaultdict(list)
        for text, docs in self.claims:
            for doc in docs:
                found[int(doc)].append(text)
        return {doc: tuple(texts) for doc, texts in found.items()}

    def groups(self, queries: Sequence[Query]) -> list[Group]:
        """The queries by scope. A query without a scope is ranked against everything."""
        by_scope: dict[str, list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            by_scope[query.scope].append(number)
        return [self._group(scope, np.array(numbers, np.int64)) for scope, numbers in by_scope.items()]

    def _group(self, scope: str, queries: Units) -> Group:
        named: list[tuple[int, int, str]] = []
        for doc, places in enumerate(self.places):
            own = [(number, name) for number, (agent, project, name) in enumerate(places)
                   if agent == AGENT and project == scope]  # fmt: skip
            inside = not scope or bool(own) or any(project == scope for _, project, _ in places)
            if own:
                named += [(doc, number, name) for number, name in own]
            elif inside:
                named.append((doc, 0, self.exchange_ids[doc].hex()))
        names = tuple(name for _, _, name in named)
        return Group(scope, queries, names, np.array([doc for doc, _, _ in named], np.int64))


def read_collection(bundle: Bundle) -> Collection:
    """The visible exchanges of a bundle. Raises BundleError where it is damaged."""
    ids: list[bytes] = []
    texts: dict[str, list[str]] = {name: [] for name in FIELDS}
    sessions: list[str] = []
    places: list[tuple[tuple[str, str, str], ...]] = []
    for segment in bundle.segments:
        _read_segment(segment, ids, texts, sessions, places)
    numbers: dict[str, int] = {}
    session_of = np.array([numbers.setdefault(name, len(numbers)) for name in sessions], np.int64)
    return Collection(
        tuple(ids),
        {name: tuple(column) for name, column in texts.items()},
        session_of,
        tuple(places),
        tuple(_claims(bundle)),
    )


def _read_segment(
    segment: Segment,
    ids: list[bytes],
    texts: dict[str, list[str]],
    sessions: list[str],
    places: list[tuple[tuple[str, str, str], ...]],
) -> None:
    docs = segment.docs
    users, agents = segment.column("exchanges", "user_text"), segment.column("exchanges", "agent_text")
    objects: dict[str, list[Any]] = {
        name: segment.column("objects", name) if segment.has("objects") else []
        for name in ("exchange_core", "specific_context", "room_assignments", "files_touched")
    }
    at: dict[str, list[Any]] = {
        name: segment.column("occurrences", name) for name in ("agent", "project", "anchor", "session_id", "title")
    }
    for doc in range(len(docs)):
        row, palace = int(docs.exchange_row[doc]), int(docs.object_row[doc])
        ids.append(bytes(segment.exchange_ids[row]))
        texts["verbatim"].append(f"{users[row]}\n{agents[row]}")
        texts["prompt"].append(users[row])
        texts["core"].append(objects["exchange_core"][palace] if palace >= 0 else "")
        texts["context"].append(objects["specific_context"][palace] if palace >= 0 else "")
        rooms = objects["room_assignments"][palace] if palace >= 0 else []
        texts["rooms"].append(" ".join(str(room["room_label"]) for room in rooms))
        files = objects["files_touched"][palace] if palace >= 0 else []
        texts["files"].append("\n".join(str(file["path"]) for file in files))
        rows = [int(n) for n in docs.occ_row[int(docs.occ_indptr[doc]) : int(docs.occ_indptr[doc + 1])]]
        sessions.append(at["session_id"][rows[0]])
        texts["title"].append(at["title"][rows[0]])
        places.append(tuple((at["agent"][n], at["project"][n], at["anchor"][n]) for n in rows))


def _claims(bundle: Bundle) -> list[tuple[str, Units]]:
    """Claims that a search counts: visible, and not replaced by a later one."""
    index = claim_index(bundle)
    texts: list[str] = []
    for segment in bundle.segments:
        if len(segment.docs.claim_row):
            column = segment.column("claims", "text")
            texts += [column[int(row)] for row in segment.docs.claim_row]
    return [
        (text, docs)
        for number, text in enumerate(texts)
        if index.current[number] and len(docs := index.docs_of(number))
    ]
