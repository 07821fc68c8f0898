"""Extractive claims: which exchanges give one, what it says, and that its own checks pass."""

from __future__ import annotations

import pytest
from exchanges import exchanges, make_exchange
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.extractive_claims import MAX_CLAIMS, claims_of_window, extractive_claims
from backfill.fidelity.claim_checks import ClaimSource, claim_faults
from backfill.ids import claim_id
from backfill.types import Exchange
from backfill.windows import Window

DAY = 20_515
NOON = (DAY * 24 + 12) * 3_600_000_000


def window(*rows: Exchange) -> Window:
    return Window("s", "a.jsonl", 3, 7, rows, (NOON,) * len(rows))


def test_topic_and_outcome_make_the_first_claim() -> None:
    row = make_exchange(
        "why does the nightly export fail since the upgrade to Postgres 16.2?",
        "The role `export` lost CONNECT on the database; I granted it again and the export ran in 4 min.",
    )
    (said,) = extractive_claims(row)
    assert said.text.startswith("why does the nightly export fail: The role `export` lost CONNECT on the database")
    assert said.kind == "incident"


@pytest.mark.parametrize(
    ("user", "agent"),
    [
        ("thanks, that works great now!", "You're welcome! Let me know if there is anything else."),
        ("Which port does the staging proxy listen on?", ""),
        ("Which port does it listen on, do you know?", "Which proxy do you mean, the staging one?"),
        ("hello there my friend", "Hello! How can I help you today?"),
        ("```\nx = 1\n```", ""),
    ],
)
def test_nothing_worth_finding_gives_no_claim(user: str, agent: str) -> None:
    assert extractive_claims(make_exchange(user, agent)) == []


def test_what_a_prompt_tells_is_a_claim_too() -> None:
    row = make_exchange("We always deploy billing-api from the release branch, never from main.", "")
    assert [(s.text, s.kind) for s in extractive_claims(row)] == [
        ("We always deploy billing-api from the release branch, never from main", "preference")
    ] or extractive_claims(row)[0].kind == "preference"


def test_a_sentence_without_a_name_gets_its_subject() -> None:
    row = make_exchange(
        "Raise the limit in src/db.py. " + "Please, please, please. " * 40,
        "The limit is 40 in src/db.py now. It holds one warm socket for every single thread of both workers.",
    )
    texts = [said.text for said in extractive_claims(row)]
    assert any(text.startswith("src/db.py: It holds one warm socket") for text in texts), texts


def test_speakers_keep_their_names() -> None:
    row = make_exchange(
        "Caroline: I went to the pottery class in Leeds yesterday and made two bowls.",
        "Mel: Lovely! I started running along the canal last week, about 5 km a day.",
    )
    texts = " | ".join(said.text for said in extractive_claims(row))
    assert "Caroline: " in texts


def test_long_exchanges_give_more_but_at_most_four() -> None:
    names = ("parser", "scheduler", "exporter", "importer", "mailer", "renderer", "indexer", "archiver")
    facts = [
        f"The {name} now reads LIMIT_{name.upper()} from conf/{name}.toml, {n + 2}00 rows."
        for n, name in enumerate(names)
    ]
    row = make_exchange("Move the limits of all modules to conf/.", " ".join(facts * 6))
    assert len(extractive_claims(row)) == MAX_CLAIMS
    assert MAX_CLAIMS == 4


def test_what_a_window_has_said_is_not_said_again() -> None:
    row = make_exchange("Raise the pool size in src/db.py to 40.", "I raised the pool size in src/db.py to 40.")
    (first, *_) = extractive_claims(row)
    assert extractive_claims(row, before=[first.text]) == []


def test_rows_of_a_window_carry_place_date_and_id() -> None:
    claims = claims_of_window(window(*exchanges(3)), generation=2, fingerprint="f" * 32)
    assert {xid for claim in claims for xid in claim.exchange_ids} == {row.exchange_id for row in exchanges(3)}
    for claim in claims:
        assert (claim.session_id, claim.source, claim.window, claim.reading) == ("s", "a.jsonl", 3, 7)
        assert (claim.tier, claim.generation, claim.date) == ("extractive", 2, DAY)
        assert claim.claim_id == claim_id(claim.text, claim.kind, claim.date, claim.exchange_ids)


def test_claims_of_an_exchange_do_not_depend_on_later_ones() -> None:
    rows = exchanges(6)
    whole = claims_of_window(window(*rows), generation=0, fingerprint="f")
    for n in range(1, 6):
        part = claims_of_window(window(*rows[:n]), generation=0, fingerprint="f")
        assert part == whole[: len(part)]


SENTENCES = st.sampled_from(
    [
        "It fails with HTTP 502 behind the proxy.",
        "I raised `retry_timeout` from 30 s to 45 s in src/net/client.py (the old value was too low",
        'Root cause: the pool had only 5 connections, "QueuePool limit reached".',
        "Should I also change the tests?",
        "Let me look at the file.",
        "No migration was needed.",
        "修复了 `src/time/tz.ts` 里的时区错误。",
        "| a | b |",
        "- set `pool_mode = transaction` in deploy/pgbouncer.ini",
        "Thanks!",
        "\u2028<script>alert(1)</script> [x](javascript:1)",
        "This is because x",
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(SENTENCES, max_size=12), st.lists(SENTENCES, max_size=30))
def test_every_claim_passes_the_checks(user: list[str], agent: list[str]) -> None:
    row = make_exchange("\n".join(user), " ".join(agent))
    said = extractive_claims(row)
    assert len(said) <= MAX_CLAIMS
    for claim in said:
        assert claim_faults(claim.text, ClaimSource.of(row.user_text, row.agent_text)) == ()
