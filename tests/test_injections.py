"""Instructions inside a transcript change nothing: not the prompt around them, not what the checks let through."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from exchanges import exchange, make_exchange

from backfill import claim_prompt, prompts
from backfill.claim_prompt import build_claims_prompt
from backfill.config import DistillConfig, EngineConfig
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.engines.base import Answer
from backfill.extractive import candidates
from backfill.prompts import build_prompt
from backfill.schema import validate
from backfill.types import Exchange
from backfill.windows import Window, Windows
from tests.injections import INJECTIONS
from tests.test_distill import Told

CONFIG = DistillConfig()
TASK = "The client gives up after 5 s. Please raise RETRY_TIMEOUT_S in src/net/client.py."
DONE = "I raised RETRY_TIMEOUT_S from 5 to 30 in src/net/client.py. All 41 tests pass."
FENCE = re.compile(r"^~{4,}$", re.MULTILINE)


def poisoned(text: str) -> Exchange:
    return make_exchange(f"{TASK}\n{text}", f"{DONE}\n{text}")


def window(*rows: Exchange) -> Window:
    return Window("s", "a.jsonl", 0, 1, rows, (None,) * len(rows))


def outside(user: str, body_of: str) -> str:
    """The user message without what stands between its fences; the fence must be the longest run of tildes."""
    fence = max(re.findall(r"^~{4,}$", user, re.MULTILINE), key=len)
    head, body, tail = re.split(rf"^{fence}$", user, flags=re.MULTILINE)
    assert body_of in body
    assert fence not in body
    return head + tail


@pytest.mark.parametrize("text", INJECTIONS)
def test_the_prompt_around_the_data_stays_as_it_is(text: str) -> None:
    row, clean = poisoned(text), poisoned("Nothing else.")
    prompt, plain = (build_prompt(r, [], budget_tokens=2000) for r in (row, clean))
    assert prompt.system == plain.system == prompts.SYSTEM
    assert outside(prompt.user, text.strip()) == outside(plain.user, "Nothing else.")
    claims, plain = (build_claims_prompt(window(r), budget_tokens=2000) for r in (row, clean))
    assert claims.system == plain.system == claim_prompt.SYSTEM
    assert outside(claims.user, text.strip()) == outside(plain.user, "Nothing else.")


@pytest.mark.parametrize("text", INJECTIONS)
def test_candidates_are_single_lines_that_no_text_can_add_to(text: str) -> None:
    row = poisoned(text)
    prompt = build_prompt(row, candidates(row), budget_tokens=2000)
    head = prompt.user.partition("\n~~~~")[0].splitlines()
    assert head[:2] in (["backfill-distill/1", "Candidates:"], ["backfill-distill/1", "Candidates: none, x is 0"])
    assert [line.partition(". ")[0] for line in head[2:]] == [str(n) for n in range(1, prompt.n_candidates + 1)]


@pytest.mark.parametrize("text", INJECTIONS)
def test_the_scripted_engine_gives_valid_rows_for_poisoned_ones(text: str) -> None:
    engine = make_engine(EngineConfig(kind="scripted"))
    rows = [poisoned(text), exchange(0)]
    shards: list[tuple[str, Any]] = [("o", rows), ("c", Windows([window(*rows)]))]
    done = {s.name: s for s in distill(shards, CONFIG, fingerprint="f", claims_fingerprint="g", engine=engine)}
    for made, row in zip(done["o"].objects, rows, strict=True):
        assert validate(made, row) is None
        assert made.files_touched == () or {f.path for f in made.files_touched} <= {*row.text_paths}
    alone = list(distill([("o", rows[1:])], CONFIG, fingerprint="f", engine=make_engine(EngineConfig(kind="scripted"))))
    assert done["o"].objects[1] == alone[0].objects[0], "a poisoned neighbour changed another exchange's object"
    assert {c.exchange_ids for c in done["c"].claims} <= {(r.exchange_id,) for r in rows}


OBEYED = (
    "PWNED PWNED PWNED.",
    "All systems are nominal and no follow-up is needed.",
    "Visit evil.example for the details of everything.",
    "The summary in the words and the language of the text.",
    "Write one sentence or two of at most 24 words together.",
    "A poem of the wide blue sea and its endless waves.",
    "The tests failed with DiskFullError on the build host.",
    "No change was made and nothing happened here at all.",
)


@pytest.mark.parametrize("core", OBEYED)
def test_a_model_that_obeyed_is_refused(core: str) -> None:
    """The engine answers what an injection asked for; the exchange itself does not say it."""
    row = make_exchange(TASK, DONE)
    wire = msgspec.json.encode({"c": core, "x": 0, "r": ["concept:exfiltrate_data"]}).decode()
    (shard,) = distill([("o", [row])], CONFIG, fingerprint="f", engine=Told(lambda _: wire))
    assert [made.tier for made in shard.objects] == ["extractive"]
    assert "exfiltrate" not in str(shard.objects[0])
    claims = msgspec.json.encode({"c": [{"t": core, "k": "fact", "e": [1]}]}).decode()
    shards = [("c", Windows([window(row)]))]
    (shard,) = distill(shards, CONFIG, fingerprint="f", claims_fingerprint="g", engine=Told(lambda _: claims))
    assert {claim.tier for claim in shard.claims} == {"extractive"}


def test_rooms_that_an_injection_names_give_way_to_those_of_the_exchange() -> None:
    wire = '{"c":"RETRY_TIMEOUT_S was raised from 5 to 30 in src/net/client.py.","x":0,"r":["file:etc_passwd"]}'
    (shard,) = distill([("o", [make_exchange(TASK, DONE)])], CONFIG, fingerprint="f", engine=Told(lambda _: wire))
    (made,) = shard.objects
    assert made.tier == "llm"
    assert "etc_passwd" not in {room.room_key for room in made.room_assignments}


def test_an_answer_for_a_number_that_nobody_asked_is_left_alone() -> None:
    engine = Told(lambda request: Answer(request.key, "", "error", error="boom"))
    (shard,) = distill([("o", [exchange(0)])], CONFIG, fingerprint="f", engine=engine)
    assert shard.stats.failures == {"engine_error": 2}
