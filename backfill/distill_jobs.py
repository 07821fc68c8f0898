"""What the distill loop asks an engine about: one job a content, of either product.

A job knows its prompt, judges the answer, and settles the rows of its shard, by the answer or without it. What it makes
depends on its rows and the answers alone. Deliberately absent: the engine and the order of things (`distill`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Protocol

from backfill.answers import Key
from backfill.config import DistillConfig
from backfill.distill_shard import DistilledShard, OpenShard
from backfill.engines.base import Answer
from backfill.engines.supervised import ENGINE_DEATH
from backfill.extractive import Candidate
from backfill.fidelity.checks import HARD, check_object
from backfill.prompts import Prompt, build_prompt
from backfill.schema import Rejection, expand
from backfill.toolpaths import files_touched
from backfill.types import FileTouched, Finding, PalaceObject
from backfill.wire import WIRE_SCHEMAS

# What of an exchange the model did not see, for its prompt was over budget: on the object, no fault of it.
CUT = "cut"


class Shard(Protocol):
    """A shard under way: counts for its manifest, and whether every row has what it gets."""

    counts: Counter[str]
    failures: Counter[str]
    first_asked: float | None
    last_answered: float

    @property
    def complete(self) -> bool: ...

    def done(self) -> DistilledShard: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """One attempt: the two messages, the schema that constrains the answer, its bound, and the log's key."""

    system: str
    user: str
    schema: str
    max_tokens: int
    key: Key


class Job(Protocol):
    """One content of a shard, asked about at most `max_attempts` times."""

    attempt: int

    @property
    def shard(self) -> Shard: ...

    @property
    def product(self) -> str: ...

    def ask(self, refusal: str) -> Ask:
        """The next attempt; `refusal` says why the answer before was refused."""
        ...

    def judge(self, answer: Answer) -> Rejection | None:
        """Settles the rows and returns None, or says why the answer does not do."""
        ...

    def shrink(self) -> None:
        """Asks for less next time: the prompt was too long for the model."""
        ...

    def fall(self) -> None:
        """Settles the rows with the best there is without another answer."""
        ...


def key_of(content: bytes, attempt: int, prompt: Prompt) -> Key:
    """The log's key of an attempt: content, attempt, and a digest of both messages."""
    text = prompt.system + "\0" + prompt.user
    return content, attempt, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()


def refused(answer: Answer) -> Rejection | None:
    """Why an answer has no text to judge, or None."""
    if answer.error:
        return Rejection(ENGINE_DEATH if answer.error == ENGINE_DEATH else "engine_error", answer.error)
    return Rejection("truncated", "the answer is too long") if answer.finish_reason == "length" else None


@dataclass(slots=True)
class ObjectJob:
    """The rows of one content, the fullest first, and the spans and files of that one."""

    shard: OpenShard
    rows: list[int]
    spans: list[Candidate]
    files: tuple[FileTouched, ...]
    config: DistillConfig
    fingerprint: str
    max_new_tokens: int
    budget_tokens: int
    attempt: int = 0
    product: str = "objects"
    _listed: int = 0
    _cut: tuple[Finding, ...] = ()
    _kept: dict[int, PalaceObject] = field(default_factory=dict)

    def ask(self, refusal: str) -> Ask:
        lead = self.shard.rows[self.rows[0]]
        self.attempt += 1
        config = self.config
        prompt = build_prompt(
            lead,
            self.spans,
            budget_tokens=self.budget_tokens,
            refusal=refusal,
            variant=config.prompt,
            context=config.context,
        )
        self._listed = prompt.n_candidates
        self._cut = tuple(Finding(CUT, f"{cut.chars:,} characters", cut.field) for cut in prompt.cuts)
        if prompt.cuts and self.attempt == 1:
            self.shard.counts["cut"] += len(self.rows)
        key = key_of(lead.content_id, self.attempt, prompt)
        return Ask(prompt.system, prompt.user, WIRE_SCHEMAS[config.context], self.max_new_tokens, key)

    def judge(self, answer: Answer) -> Rejection | None:
        made = self._object(self.rows[0], answer)
        if isinstance(made, Rejection):
            return made
        made_of = {self.rows[0]: made}
        for i in self.rows[1:]:
            twin = self._object(i, answer)
            if not isinstance(twin, Rejection):
                made_of[i] = twin
        soft = next((f for f in made.findings if f.kind in ("dropped", "bloat")), None)
        if soft is not None and self.attempt < self.config.max_attempts:
            # What leaves something out is still better than nothing: it stays unless the next answer is whole.
            self._kept = made_of
            return Rejection(soft.kind, f"{soft.handle}")
        self._settle(made_of)
        return None

    def shrink(self) -> None:
        self.budget_tokens //= 2

    def fall(self) -> None:
        self._settle(self._kept)

    def _settle(self, made_of: dict[int, PalaceObject]) -> None:
        for i in self.rows:
            if i in made_of:
                self.shard.settle(i, made_of[i])
            else:
                self.shard.fall(i)

    def expanded(self, i: int, answer: Answer) -> PalaceObject | Rejection:
        """The object that an answer gives for row `i`, valid but not checked against that row."""
        if rejection := refused(answer):
            return rejection
        row = self.shard.rows[i]
        files = self.files if i == self.rows[0] else files_touched(row)
        return expand(
            answer.text,
            row,
            self.spans[: self._listed],
            files,
            generation=self.config.generation,
            fingerprint=self.fingerprint,
            context=self.config.context,
        )

    def _object(self, i: int, answer: Answer) -> PalaceObject | Rejection:
        """The object that an answer gives for row `i`, checked against that row."""
        made = self.expanded(i, answer)
        if isinstance(made, Rejection):
            return made
        findings = check_object(made, self.shard.rows[i])
        worst = next((f for f in findings if f.kind in HARD), None)
        if worst is not None:
            return Rejection(worst.kind, HARD[worst.kind].format(worst.handle))
        return replace(made, findings=(*made.findings, *findings, *self._cut))
