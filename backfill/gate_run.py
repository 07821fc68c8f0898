"""`gate`: engines over one fixed sample, their first answers judged before any retry or fallback.

For every exchange of the sample an engine is asked once, as a run would ask it; what comes back is expanded and checked
by the same code, and secrets are looked for in the answer as it was written. A quarter as many windows are asked for
claims. Deliberately absent: thresholds and files (`gate`), printing (the command).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backfill.auditors import Opinion, audit, doubted_by_most
from backfill.claim_jobs import ClaimJob, OpenClaims
from backfill.claim_prompt import claim_source, parse_claims
from backfill.config import Config, EngineConfig
from backfill.distill_jobs import ObjectJob, refused
from backfill.distill_shard import OpenShard
from backfill.engines import make_engine
from backfill.engines.asking import ask_all
from backfill.engines.base import Answer, Engine, Request
from backfill.extractive import candidates, extract
from backfill.extractive_claims import claims_of_window
from backfill.fidelity.answers import redact_answer
from backfill.fidelity.checks import check_object
from backfill.fidelity.claim_checks import ClaimSource, claim_faults
from backfill.gate import FAIL, MARGINAL, PASS, Tally, judge
from backfill.gate_sample import Sample
from backfill.privacy import Redactor
from backfill.schema import Rejection
from backfill.toolpaths import files_touched
from backfill.types import Exchange, PalaceObject

ShouldStop = Callable[[], bool]
_COUNTED = ("invented", "mangled", "dropped", "absence", "bloat", "leak")
_RANK = {PASS: 0, MARGINAL: 1, FAIL: 2}


@dataclass(slots=True)
class Judged:
    """An engine's tallies over objects and claims, what its auditors said, and the verdict with its reasons."""

    objects: Tally
    claims: Tally
    verdict: str
    reasons: list[str]
    opinions: list[tuple[str, Opinion]] = field(default_factory=list)
    findings: list[tuple[str, str, str]] = field(default_factory=list)


def judge_engine(config: Config, engine: EngineConfig, sample: Sample, should_stop: ShouldStop) -> Judged:
    """Asks one engine about the sample. Raises ModelError where it does not load, EngineError where it dies for good,
    Interrupted."""
    pairs: list[tuple[PalaceObject, Exchange]] = []
    findings: list[tuple[str, str, str]] = []
    if engine.kind == "extractive":
        objects, claims = Tally(), Tally()
        _extract_all(config, sample, objects, claims, pairs, findings)
    else:
        running = make_engine(engine)
        try:
            objects = ask_objects(config, engine, running, sample.rows, pairs, findings, should_stop)
            claims = ask_claims(config, running, sample, findings, should_stop)
        finally:
            running.close()
    opinions = [(auditor.model or auditor.kind, _opinion(auditor, config, pairs)) for auditor in config.gate.auditors]
    doubted = doubted_by_most([opinion for _, opinion in opinions])
    verdict, reasons = judge(objects, config.gate, 100 * len(doubted) / max(1, len(pairs)))
    if claims.n:
        other, why = judge(claims, config.gate)
        verdict = max(verdict, other, key=_RANK.__getitem__)
        reasons += [f"claims: {reason}" for reason in why]
    return Judged(objects, claims, verdict, reasons, opinions, findings)


def _opinion(auditor: EngineConfig, config: Config, pairs: Sequence[tuple[PalaceObject, Exchange]]) -> Opinion:
    engine = make_engine(auditor)
    try:
        return audit(engine, pairs, budget_tokens=config.distill.prompt_tokens)
    finally:
        engine.close()


def ask_objects(
    config: Config,
    engine: EngineConfig,
    running: Engine,
    rows: Sequence[Exchange],
    pairs: list[tuple[PalaceObject, Exchange]],
    findings: list[tuple[str, str, str]],
    should_stop: ShouldStop,
) -> Tally:
    """What an engine's first answers about exchanges are worth; `pairs` and `findings` are added to."""
    tally = Tally(n=len(rows))
    jobs, requests = [], []
    for i, row in enumerate(rows):
        shard = OpenShard(str(i), [row], config.distill, "")
        files = files_touched(row)
        job = ObjectJob(
            shard, [0], candidates(row), files, config.distill, "", engine.max_new_tokens, config.distill.prompt_tokens
        )
        ask = job.ask("")
        jobs.append(job)
        requests.append(Request(i, ask.system, ask.user, ask.schema, ask.max_tokens))
    for answer in _timed(running, requests, tally, should_stop):
        answer = _counted(tally, answer)
        row = rows[answer.key]
        made = jobs[answer.key].expanded(0, answer)
        if isinstance(made, Rejection):
            _refuse(tally, made)
        else:
            _take(tally, made, row, findings)
            pairs.append((made, row))
    tally.tier_counts = {"llm": tally.made, "none": tally.n - tally.made}
    return tally


def ask_claims(
    config: Config, running: Engine, sample: Sample, findings: list[tuple[str, str, str]], should_stop: ShouldStop
) -> Tally:
    """The same about the sample's windows; an empty tally where claims are not wanted."""
    tally = Tally(n=len(sample.windows))
    if "claims" not in config.distill.products or not sample.windows:
        return Tally()
    jobs = []
    for i, window in enumerate(sample.windows):
        shard = OpenClaims(str(i), [window], config.distill, "")
        jobs.append(ClaimJob(shard, 0, config.distill, "", config.distill.prompt_tokens))
    asks = [job.ask("") for job in jobs]
    requests = [Request(i, ask.system, ask.user, ask.schema, ask.max_tokens) for i, ask in enumerate(asks)]
    for answer in _timed(running, requests, tally, should_stop):
        answer = _counted(tally, answer)
        window = sample.windows[answer.key]
        drafts = refused(answer) or parse_claims(answer.text, len(window.exchanges))
        if isinstance(drafts, Rejection):
            _refuse(tally, drafts)
        else:
            tally.made += 1
            _take_claims(tally, [draft.text for draft in drafts], claim_source(window), findings)
    return tally


def _extract_all(
    config: Config,
    sample: Sample,
    objects: Tally,
    claims: Tally,
    pairs: list[tuple[PalaceObject, Exchange]],
    findings: list[tuple[str, str, str]],
) -> None:
    started = time.monotonic()
    objects.n = objects.timed = len(sample.rows)
    pairs += [(extract(row, generation=0, fingerprint="", min_tokens=config.distill.min_tokens), row)
              for row in sample.rows]  # fmt: skip
    objects.seconds = time.monotonic() - started
    for made, row in pairs:
        _take(objects, made, row, findings)
    objects.tier_counts = dict(Counter(made.tier for made, _ in pairs))
    if "claims" in config.distill.products:
        claims.n = len(sample.windows)
        for window in sample.windows:
            texts = [claim.text for claim in claims_of_window(window, generation=0, fingerprint="")]
            claims.made += 1
            _take_claims(claims, texts, claim_source(window), findings)


def _timed(running: Engine, requests: Sequence[Request], tally: Tally, should_stop: ShouldStop) -> Iterator[Answer]:
    """All answers; the clock runs from the first one on, so that loading a model and its grammar is not counted."""
    yield from ask_all(running, requests[:1], should_stop=should_stop)
    started = time.monotonic()
    yield from ask_all(running, requests[1:], should_stop=should_stop)
    tally.seconds, tally.timed = time.monotonic() - started, len(requests) - 1


def _counted(tally: Tally, answer: Answer) -> Answer:
    """The answer without secrets, as a run would judge it; what it cost and the secrets in it are counted."""
    redactor = Redactor("secrets")
    text = redact_answer(answer.text, redactor)
    tally.tokens_in += answer.tokens_in
    tally.tokens_out += answer.tokens_out
    tally.secrets += sum(redactor.counts.values())
    return replace(answer, text=text)


def _refuse(tally: Tally, why: Rejection) -> None:
    tally.schema_failures += 1
    tally.ungrounded += why.reason == "ungrounded"
    tally.failures[why.reason] = tally.failures.get(why.reason, 0) + 1


def _take(tally: Tally, made: PalaceObject, row: Exchange, findings: list[tuple[str, str, str]]) -> None:
    tally.made += 1
    tally.distilled_tokens += made.tokens
    tally.reference_tokens += extract(row, generation=0, fingerprint="").tokens
    for finding in check_object(made, row):
        _note(tally, finding.kind)
        findings.append((finding.kind, finding.handle, made.exchange_core))


def _take_claims(tally: Tally, texts: Sequence[str], source: str, findings: list[tuple[str, str, str]]) -> None:
    made_from = ClaimSource.of(source)
    for text in texts:
        for fault in claim_faults(text, made_from):
            _note(tally, fault.kind)
            findings.append((fault.kind, fault.handle, text))


def _note(tally: Tally, kind: str) -> None:
    if kind in _COUNTED:
        setattr(tally, kind, getattr(tally, kind) + 1)


def engine_record(name: str, fingerprint: str, judged: Judged) -> dict[str, Any]:
    """An engine's part of the `gate --json` record."""
    objects = judged.objects
    return {
        "name": name,
        "fingerprint": fingerprint,
        **_counts(objects),
        "claims": _counts(judged.claims) if judged.claims.n else None,
        "auditors": [
            {"name": auditor, "n": opinion.n, "doubts": len(opinion.doubts)} for auditor, opinion in judged.opinions
        ],
        "verdict": judged.verdict,
        "reasons": judged.reasons,
    }


def _counts(tally: Tally) -> dict[str, Any]:
    rate = tally.timed / tally.seconds if tally.seconds > 0 else 0.0
    tree = {name: getattr(tally, name) for name in ("n", "made", "tier_counts", *_COUNTED)}
    tree |= {name: getattr(tally, name) for name in ("secrets", "schema_failures", "ungrounded", "failures")}
    return tree | {
        "tokens_in": tally.tokens_in,
        "tokens_out": tally.tokens_out,
        "mean_tokens": round(tally.distilled_tokens / max(1, tally.made), 2),
        "density": round(tally.density, 3),
        "ex_s": round(rate, 3),
    }
