"""The gold set: well-formed, faithful to its exchanges, and in no prompt."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from exchanges import make_exchange

from backfill import claim_prompt, prompts
from backfill.extractive import extract
from backfill.fidelity.checks import HARD, check_object, classify, exchange_source
from backfill.fidelity.claim_checks import ClaimSource, claim_faults
from backfill.fidelity.handles import find_handles
from backfill.schema import validate
from bench.gold import FOLDER, GoldPair, load_gold
from bench.quality import score_gold, vocabulary

GOLD = load_gold()
# A reader's own words may differ from the source's: so many of a hundred faithful items may be refused.
MAX_FALSE_ALARMS = 0.03
PACKAGE = Path(prompts.__file__).parent


def test_there_are_120_short_objects_of_many_agents() -> None:
    assert len({record.content_id for record in GOLD}) == len(GOLD) == 120
    assert sum(record.tokens for record in GOLD) / len(GOLD) <= 38
    assert len({record.source.partition("/")[0] for record in GOLD}) >= 15


def test_exchanges_are_named_by_hash_and_records_are_complete() -> None:
    for record in GOLD:
        assert re.fullmatch(r"[0-9a-f]{32}", record.content_id)
        assert len(record.claims) <= 4
        assert 1 <= len(record.rooms) <= 3
        assert all(re.fullmatch(r"(file|concept|workflow):[a-z0-9]+(_[a-z0-9]+)*", room) for room in record.rooms), (
            record
        )


def test_every_object_is_valid_and_every_handle_is_supported(gold: list[GoldPair]) -> None:
    for pair in gold:
        assert validate(pair.made, pair.row) is None
        wrong = [f for f in check_object(pair.made, pair.row) if f.kind in HARD]
        assert not wrong, (pair.gold.content_id, wrong)


def test_every_handle_of_a_claim_is_supported(gold: list[GoldPair]) -> None:
    for pair in gold:
        source = exchange_source(pair.row)
        for claim in pair.gold.claims:
            wrong = [h for h in find_handles(claim.text) if classify(h, source) != "supported"]
            assert not wrong, (pair.gold.content_id, wrong)


def test_the_checks_refuse_few_faithful_claims(gold: list[GoldPair]) -> None:
    claims = [(claim, ClaimSource.of(exchange_source(pair.row))) for pair in gold for claim in pair.gold.claims]
    refused = [claim for claim, source in claims if claim_faults(claim.text, source)]
    assert len(refused) <= MAX_FALSE_ALARMS * len(claims), refused


def test_no_prompt_holds_any_of_it() -> None:
    said = [text for record in GOLD for text in (record.exchange_core, *(claim.text for claim in record.claims))]
    runs = {run for text in said for run in _runs(text)}
    for text in (prompts.SYSTEM, prompts.ASK, claim_prompt.SYSTEM, claim_prompt.ASK):
        assert not runs & _runs(text)
    for path in PACKAGE.rglob("*.py"):
        assert FOLDER.name + "/" not in path.read_text(encoding="utf-8"), path


def _runs(text: str) -> set[tuple[str, ...]]:
    """Runs of five words."""
    words = re.findall(r"\w+", text.lower())
    return set(zip(*(words[k:] for k in range(5)), strict=False))


def test_the_gold_objects_score_full_marks_against_themselves(gold: list[GoldPair]) -> None:
    best = score_gold(gold, [pair.made for pair in gold])
    assert (best.recall, best.precision, best.rooms, best.density) == (1.0, 1.0, 1.0, 1.0)
    empty = [replace(pair.made, exchange_core="", specific_context="", room_assignments=()) for pair in gold]
    worst = score_gold(gold, empty)
    assert (worst.recall, worst.precision, worst.rooms) == (0.0, 0.0, 0.0)


def test_vocabulary_counts_the_rarest_terms() -> None:
    rows = [make_exchange("rename widget", "done"), make_exchange("rename gadget", "done")]
    made = [replace(extract(row, generation=0, fingerprint=""), exchange_core="the widget") for row in rows]
    assert vocabulary(rows, made) == pytest.approx((1 / 2 + 0) / 2)  # "done" is no term
