"""Claims by an engine: what is accepted, what is asked again, what falls to extraction; order does not matter."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from exchanges import exchange, exchanges, make_exchange, make_tool

from backfill.answers import AnswerLog
from backfill.claim_prompt import (
    CLAIMS_SCHEMA,
    MAX_NAMES,
    build_claims_prompt,
    claims_digest,
    names_before,
    parse_claims,
)
from backfill.config import DistillConfig, EngineConfig
from backfill.distill import DistilledShard, claims_fingerprint, distill, distill_fingerprint
from backfill.engines import make_engine
from backfill.engines.base import Answer, Request
from backfill.extractive_claims import claims_of_window
from backfill.schema import Rejection
from backfill.types import Claim, Exchange
from backfill.windows import Window, Windows
from tests.test_distill import Counting, Told

CONFIG = DistillConfig(generation=1)
DAY_US = 86_400_000_000
GOOD = ("RETRY_TIMEOUT_S was raised from 5 to 30 in src/net/client.py.", "config", [1])
OTHER = ("CACHE_TTL_S was set to 900 in src/search/cache.py for search results.", "config", [2])


def window(*rows: Exchange, number: int = 0, lead: tuple[Exchange, ...] = ()) -> Window:
    return Window("s", "a.jsonl", number, 5, rows, tuple((20_000 + n) * DAY_US + 5 for n in range(len(rows))), lead)


def wire(*claims: tuple[str, str, list[int]]) -> str:
    return msgspec.json.encode({"c": [{"t": t, "k": k, "e": e} for t, k, e in claims]}).decode()


def one(say: Callable[[Request], str | Answer], *rows: Exchange) -> tuple[list[Claim], DistilledShard, Told]:
    engine = Told(say)
    shards = [("c", Windows([window(*(rows or (exchange(0), exchange(1))))]))]
    (shard,) = distill(shards, CONFIG, fingerprint="f", claims_fingerprint="g", engine=engine)
    return shard.claims, shard, engine


def test_an_answer_becomes_rows_with_provenance_kind_and_date() -> None:
    claims, shard, engine = one(lambda _: wire(GOOD, OTHER))
    rows = (exchange(0), exchange(1))
    assert [(c.text, c.kind, c.exchange_ids, c.date, c.tier) for c in claims] == [
        (GOOD[0], "config", (rows[0].exchange_id,), 20_000, "llm"),
        (OTHER[0], "config", (rows[1].exchange_id,), 20_001, "llm"),
    ]
    assert {(c.generation, c.fingerprint, c.window, c.reading) for c in claims} == {(1, "g", 0, 5)}
    assert (shard.stats.n, shard.stats.llm, shard.stats.n_claims, shard.stats.requests) == (1, 1, 2, 1)
    assert engine.seen[0].schema == CLAIMS_SCHEMA
    assert engine.seen[0].max_tokens == CONFIG.claims_max_new_tokens


def test_a_claim_of_several_exchanges_names_them_all() -> None:
    both = ("RETRY_TIMEOUT_S was raised to 30 and CACHE_TTL_S was set to 900.", "config", [2, 1, 2])
    claims, _, _ = one(lambda _: wire(both))
    assert claims[0].exchange_ids == tuple(sorted(row.exchange_id for row in (exchange(0), exchange(1))))
    assert claims[0].date == 20_001


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("It was raised from 5 to 30 in src/net/client.py.", "dangling"),
        ("RETRY_TIMEOUT_S was raised from 5 to 35000 in src/net/client.py.", "invented"),
        ("The cache was not changed in src/net/client.py.", "absence"),
        ("Let me look at RETRY_TIMEOUT_S in src/net/client.py.", "mechanics"),
    ],
)
def test_a_bad_claim_is_named_in_the_retry(bad: str, reason: str) -> None:
    claims, shard, engine = one(lambda r: wire(GOOD, OTHER) if "refused" in r.user else wire((bad, "fact", [1]), OTHER))
    assert f"refused: {reason}" in engine.seen[1].user
    assert [c.text for c in claims] == [GOOD[0], OTHER[0]]
    assert (shard.stats.failures, shard.stats.retries) == ({reason: 1}, 1)


def test_what_is_sound_of_the_last_answer_stays() -> None:
    bad = ("RETRY_TIMEOUT_S was raised to 35000 in src/net/client.py.", "config", [1])
    claims, shard, _ = one(lambda _: wire(bad, OTHER))
    assert [c.text for c in claims] == [OTHER[0]]
    assert (shard.stats.llm, shard.stats.requests) == (1, 2)


def test_an_exchange_worth_finding_without_a_claim_is_asked_for() -> None:
    claims, _, engine = one(lambda r: wire(GOOD, OTHER) if "exchange 2 has no claim" in r.user else wire(GOOD))
    assert (len(engine.seen), len(claims)) == (2, 2)


@pytest.mark.parametrize(
    "said", ["no JSON", '{"c":[]}', wire(("RETRY_TIMEOUT_S is 35000 now in the client.", "fact", [1]))]
)
def test_a_window_without_a_sound_claim_is_extractive(said: str) -> None:
    claims, shard, _ = one(lambda _: said)
    assert claims == claims_of_window(window(exchange(0), exchange(1)), generation=1, fingerprint="g")
    assert (shard.stats.extractive, shard.stats.requests) == (1, 2)


def test_too_little_cover_is_extractive() -> None:
    rows = exchanges(5)
    claims, shard, _ = one(lambda _: wire(GOOD), *rows)
    assert {c.tier for c in claims} == {"extractive"}
    assert shard.stats.failures == {"coverage": 2}


def test_faults_of_the_engine_are_counted_and_shrink_the_prompt() -> None:
    long = make_exchange("Why? " * 500, "Because of this and that. " * 200)
    _, shard, engine = one(lambda _: Answer(0, "", "error", error="too long"), long)
    assert shard.stats.failures == {"engine_error": 2}
    assert len(engine.seen[1].user) < 0.7 * len(engine.seen[0].user)
    _, shard, _ = one(lambda _: Answer(0, wire(GOOD)[:40], "length"))
    assert shard.stats.failures == {"truncated": 2}


def test_a_window_of_short_exchanges_is_never_asked_about() -> None:
    claims, shard, engine = one(lambda _: wire(GOOD), make_exchange("yes", "ok"))
    assert (claims, engine.seen) == ([], [])
    assert (shard.stats.raw, shard.stats.eligible, shard.stats.n) == (1, 0, 1)


def test_extraction_alone_needs_no_engine() -> None:
    windows = Windows([window(*exchanges(3)), window(*exchanges(2), number=1)])
    (shard,) = distill([("c", windows)], CONFIG, fingerprint="f", claims_fingerprint="g")
    assert shard.claims == [c for w in windows for c in claims_of_window(w, generation=1, fingerprint="g")]
    assert shard.objects == []


def test_equal_windows_are_asked_once() -> None:
    copy = replace(window(exchange(0), exchange(1)), session_id="copy", source="b.jsonl")
    windows = Windows([window(exchange(0), exchange(1)), copy])
    engine = Told(lambda _: wire(GOOD, OTHER))
    shards = [("c", windows), ("d", windows)]
    done = list(distill(shards, CONFIG, fingerprint="f", claims_fingerprint="g", engine=engine))
    assert len(engine.seen) == 1
    assert {(c.session_id, c.tier) for shard in done for c in shard.claims} == {("s", "llm"), ("copy", "llm")}
    assert sum(shard.stats.requests for shard in done) == 1
    assert sum(shard.stats.shared for shard in done) == 3


def test_claims_do_not_depend_on_window_order_or_shards() -> None:
    rows = exchanges(40)
    windows = [window(*rows[i : i + 4], number=i) for i in range(0, 40, 4)]
    faults = {"fail_rate": 0.2, "garbage_rate": 0.2}

    def go(shards: list[tuple[str, Windows]], size: int) -> dict[bytes, Claim]:
        engine = make_engine(EngineConfig(kind="scripted", window=size, **faults))  # type: ignore[arg-type]
        done = distill(shards, CONFIG, fingerprint="f", claims_fingerprint="g", engine=engine)
        return {claim.claim_id: claim for shard in done for claim in shard.claims}

    plain = go([("0", Windows(windows))], 1)
    assert plain == go([(str(i), Windows(windows[i : i + 3])) for i in (6, 0, 9, 3)], 7)
    assert {claim.tier for claim in plain.values()} == {"llm", "extractive"}


def test_answers_are_replayed_under_the_claims_own_fingerprint(tmp_path: Path) -> None:
    shards = [("o", exchanges(4)), ("c", Windows([window(*exchanges(4))]))]
    for print_of_claims, asked in (("g", None), ("g", 0), ("new prompt", 1)):
        engine = Counting(make_engine(EngineConfig(kind="scripted")))
        with AnswerLog(tmp_path / "o.jsonl", "f") as log, AnswerLog(tmp_path / "c.jsonl", print_of_claims) as other:
            list(
                distill(
                    shards,
                    CONFIG,
                    fingerprint="f",
                    claims_fingerprint=print_of_claims,
                    engine=engine,
                    log=log,
                    claims_log=other,
                )
            )
        assert asked is None or min(engine.asked, 1) == asked


def test_each_product_has_a_fingerprint_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineConfig(kind="scripted")
    before = distill_fingerprint(CONFIG, engine), claims_fingerprint(CONFIG, engine)
    assert before[0] != before[1]
    monkeypatch.setattr("backfill.claim_prompt.ASK", "Write claims.")
    assert distill_fingerprint(CONFIG, engine) == before[0]
    assert claims_fingerprint(CONFIG, engine) != before[1]


def test_the_prompt_has_dates_numbers_names_and_no_tool_output() -> None:
    tool = make_tool(asked="pytest -q tests/net\nsecond line", head="41 passed in 3 s", tail="exit 0")
    row = make_exchange("Run the tests of the client.", "All tests of the client pass.", (tool,))
    lead = make_exchange("Look at src/net/client.py.", "`RetryPolicy` lives in src/net/client.py.")
    prompt = build_claims_prompt(window(row, row, lead=(lead,)), budget_tokens=2000)
    assert re.findall(r"^\[\d\].*$", prompt.user, re.MULTILINE) == ["[1] 2024-10-04", "[2] 2024-10-05"]
    assert "Names used before: src/net/client.py, RetryPolicy" in prompt.user
    assert "TOOL Bash: pytest -q tests/net\n" in prompt.user
    assert "41 passed" not in prompt.user
    assert "second line" not in prompt.user


def test_names_are_bounded_and_the_latest_come_first() -> None:
    lead = tuple(make_exchange(" ".join(f"see src/m{i}/{n}.py" for n in range(20)), "") for i in range(2))
    names = names_before(window(exchange(0), lead=lead))
    assert len(names) == MAX_NAMES
    assert names[0] == "src/m1/0.py"


def test_a_long_window_is_cut_to_its_budget_and_says_so() -> None:
    rows = [make_exchange("Why? " * 400, "So it is said. " * 400), exchange(1)]
    prompt = build_claims_prompt(window(*rows), budget_tokens=800)
    assert len((prompt.system + prompt.user).encode()) <= 800 * 4 + 200
    assert "characters cut" in prompt.user
    assert exchange(1).agent_text in prompt.user, "a short exchange is shown whole beside a long one"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "json"),
        ('{"c":[{"t":"x","k":"rumour","e":[1]}]}', "schema"),
        ('{"c":[{"t":"x","k":"fact","e":[1],"z":0}]}', "schema"),
        ('{"c":[{"t":"Numbers that the window does not have.","k":"fact","e":[7]}]}', "claims_empty"),
    ],
)
def test_what_is_no_wire_text_is_refused(text: str, reason: str) -> None:
    made = parse_claims(text, 2)
    assert isinstance(made, Rejection)
    assert made.reason == reason


def test_the_digest_follows_the_prompt_and_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    first = claims_digest(1000)
    assert first == claims_digest(1000) != claims_digest(1001)
    monkeypatch.setattr("backfill.claim_prompt.SYSTEM", "Another instruction.")
    assert claims_digest(1000) != first
