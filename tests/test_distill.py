"""The distill loop: one object a row, whatever the order, the window, the engine's faults and the interruptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exchanges import exchange, exchanges, make_exchange, make_tool

from backfill.answers import AnswerLog
from backfill.config import DistillConfig, EngineConfig
from backfill.distill import DistilledShard, distill, distill_fingerprint
from backfill.engines import make_engine
from backfill.engines.base import Answer, Request
from backfill.errors import Interrupted
from backfill.extractive import extract
from backfill.ids import row_hash
from backfill.schema import validate
from backfill.types import Exchange, PalaceObject

CONFIG = DistillConfig(generation=2)
PRINT = "0" * 32
CORE = "The client gives up after 5 s."


class Told:
    """An engine that answers as a function says: wire text, or an `Answer` with a fault."""

    deterministic = True

    def __init__(self, say: Callable[[Request], str | Answer], window: int = 4) -> None:
        self.window = window
        self.seen: list[Request] = []
        self._say = say
        self._held: list[Answer] = []

    def identity(self) -> dict[str, Any]:
        return {"engine": "told"}

    def submit(self, request: Request) -> None:
        self.seen.append(request)
        said = self._say(request)
        answer = Answer(request.key, said, "stop", tokens_out=10) if isinstance(said, str) else said
        self._held.append(replace(answer, key=request.key))

    def poll(self, timeout_s: float) -> list[Answer]:
        return [self._held.pop()] if self._held else []

    def close(self) -> None:
        self._held.clear()


def wire(core: str = CORE, x: int = 0) -> str:
    return f'{{"c":"{core}","x":{x},"r":["concept:client_timeout"]}}'


def scripted(**settings: Any) -> Any:
    return make_engine(EngineConfig(kind="scripted", **settings))


def shards_of(rows: Sequence[Exchange], size: int) -> list[tuple[str, list[Exchange]]]:
    return [(str(i), list(rows[i : i + size])) for i in range(0, len(rows), size)]


def by_row(shards: list[DistilledShard]) -> dict[bytes, PalaceObject]:
    return {made.source_row: made for shard in shards for made in shard.objects}


def one(
    say: Callable[[Request], str | Answer], row: Exchange | None = None
) -> tuple[PalaceObject, DistilledShard, Told]:
    engine = Told(say)
    (shard,) = distill([("s", [row or exchange(0)])], CONFIG, fingerprint=PRINT, engine=engine)
    (made,) = shard.objects
    return made, shard, engine


def test_every_row_gets_a_valid_object_with_its_source_row() -> None:
    rows = exchanges(40)
    done = list(distill(shards_of(rows, 7), CONFIG, fingerprint=PRINT, engine=scripted()))
    assert sorted(shard.name for shard in done) == sorted(str(i) for i in range(0, 40, 7))
    for shard in done:
        first = int(shard.name)
        assert [made.exchange_id for made in shard.objects] == [r.exchange_id for r in rows[first : first + 7]]
        for made, row in zip(shard.objects, rows[first : first + 7], strict=True):
            assert made.source_row == row_hash(row)
            assert validate(made, row) is None or made.tier != "llm"
            assert (made.generation, made.fingerprint) == (2, PRINT)
    assert sum(shard.stats.llm for shard in done) >= 30


def test_objects_do_not_depend_on_window_order_or_shards() -> None:
    rows = exchanges(60)
    faults: dict[str, float] = {"fail_rate": 0.2, "garbage_rate": 0.2}
    plain = by_row(list(distill(shards_of(rows, 60), CONFIG, fingerprint=PRINT, engine=scripted(window=1, **faults))))
    mixed = by_row(
        list(distill(shards_of(rows[::-1], 7), CONFIG, fingerprint=PRINT, engine=scripted(window=23, seed=5, **faults)))
    )
    assert plain == mixed
    assert {made.tier for made in plain.values()} == {"llm", "extractive"}


def test_the_window_spans_shards() -> None:
    engine = Told(lambda request: wire(), window=10)
    stream = distill(((str(i), [exchange(i)]) for i in range(30)), CONFIG, fingerprint=PRINT, engine=engine)
    next(stream)
    assert len(engine.seen) >= 10


def test_a_refused_answer_is_asked_again_with_the_reason() -> None:
    made, shard, engine = one(lambda r: wire() if "refused" in r.user else '{"c":')
    assert (made.tier, made.exchange_core) == ("llm", CORE)
    assert "refused: json" in engine.seen[1].user
    assert shard.stats.failures == {"json": 1}
    assert (shard.stats.requests, shard.stats.retries, shard.stats.llm) == (2, 1, 1)


def test_a_second_refusal_falls_to_the_extractive_object() -> None:
    row = exchange(0)
    made, shard, _ = one(lambda request: "no JSON at all")
    assert made == extract(row, generation=2, fingerprint=PRINT)
    assert made.tier == "extractive"
    assert (shard.stats.failures, shard.stats.requests, shard.stats.extractive) == ({"json": 2}, 2, 1)


def test_what_extraction_cannot_use_ends_raw() -> None:
    made, shard, _ = one(lambda request: "no", make_exchange("```\n" + "x = 1\n" * 20 + "```", ""))
    assert made.tier == "raw"
    assert (shard.stats.raw, shard.stats.eligible) == (1, 1)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (Answer(0, "", "error", error="boom"), "engine_error"),
        (Answer(0, wire()[:30], "length"), "truncated"),
        (wire("The client gives up after 55 minutes."), "invented"),
        (wire(x=-1), "context_number"),
    ],
)
def test_faults_are_counted_by_reason(said: str | Answer, reason: str) -> None:
    made, shard, _ = one(lambda request: said)
    assert made.tier == "extractive"
    assert shard.stats.failures == {reason: 2}


def test_a_failed_request_comes_back_with_a_smaller_prompt() -> None:
    row = make_exchange("Why? " * 400, "Because of this and that. " * 200)
    _, _, engine = one(lambda request: Answer(0, "", "error", error="too long"), row)
    assert len(engine.seen[1].user) < 0.7 * len(engine.seen[0].user)


def test_a_short_exchange_is_raw_and_never_asked_about() -> None:
    engine = Told(lambda request: wire())
    rows = [make_exchange("yes", "ok"), exchange(0)]
    (shard,) = distill([("s", rows)], CONFIG, fingerprint=PRINT, engine=engine)
    assert [made.tier for made in shard.objects] == ["raw", "llm"]
    assert (len(engine.seen), shard.stats.eligible, shard.stats.n) == (1, 1, 2)


def test_shards_without_a_question_come_out_too() -> None:
    shards = [("empty", []), ("short", [make_exchange("yes", "")])]
    done = list(distill(shards, CONFIG, fingerprint=PRINT, engine=Told(lambda request: wire())))
    assert [(shard.name, len(shard.objects)) for shard in done] == [("empty", 0), ("short", 1)]


def test_equal_content_is_asked_once_and_each_row_gets_its_own_object() -> None:
    user, agent = "The build fails with an odd error, what is it?", "It is the linker, as its message says."
    long = make_exchange(user, agent, (make_tool(head="ld: cannot find -lssl (error 1)", tail="make: *** Error 2"),))
    twin = replace(
        long, exchange_id=b"t" * 16, tools=(replace(long.tools[0], head="", tail="ld: cannot find -lssl (error 1)"),)
    )
    bare = replace(long, exchange_id=b"b" * 16, tools=(replace(long.tools[0], head="", tail=""),))
    assert long.content_id == twin.content_id == bare.content_id

    engine = Told(lambda request: wire("The build fails with an odd error of the linker.", number_of(request, "-lssl")))
    (shard,) = distill([("s", [bare, twin, long])], CONFIG, fingerprint=PRINT, engine=engine)
    assert len(engine.seen) == 1
    assert [made.tier for made in shard.objects] == ["extractive", "llm", "llm"]
    assert [made.context_field for made in shard.objects[1:]] == ["tools.0.tail", "tools.0.head"]
    assert [made.source_row for made in shard.objects] == [row_hash(row) for row in (bare, twin, long)]


def number_of(request: Request, text: str) -> int:
    """The number of the listed candidate that holds a text."""
    listing = request.user.partition("Candidates:\n")[2].splitlines()
    return next(int(line.partition(".")[0]) for line in listing if text in line)


def test_extraction_alone_needs_no_engine() -> None:
    rows = exchanges(9)
    done = list(distill(shards_of(rows, 4), CONFIG, fingerprint=PRINT))
    assert [shard.name for shard in done] == ["0", "4", "8"]
    assert [made for shard in done for made in shard.objects] == [
        extract(row, generation=2, fingerprint=PRINT) for row in rows
    ]


def test_answers_are_replayed_and_only_the_rest_is_asked(tmp_path: Path) -> None:
    rows, path = exchanges(20), tmp_path / "answers.jsonl"
    whole = by_row(list(distill(shards_of(rows, 5), CONFIG, fingerprint=PRINT, engine=scripted(garbage_rate=0.3))))
    first = Counting(scripted(garbage_rate=0.3, window=4), stop_after=9)
    with AnswerLog(path, PRINT) as log, pytest.raises(Interrupted):
        list(distill(shards_of(rows, 20), CONFIG, fingerprint=PRINT, engine=first, log=log, should_stop=first.stop))
    with path.open("ab") as file:
        file.write(b'{"content_id":"00')  # the line that a crash tore
    second = Counting(scripted(garbage_rate=0.3))
    with AnswerLog(path, PRINT) as log:
        (shard,) = distill(shards_of(rows, 20), CONFIG, fingerprint=PRINT, engine=second, log=log)
    assert by_row([shard]) == whole
    assert shard.stats.replayed == first.asked >= 9
    assert shard.stats.requests == second.asked
    third = Counting(scripted(garbage_rate=0.3))
    with AnswerLog(tmp_path / "other.jsonl", PRINT, replay=[path]) as log:
        assert by_row(list(distill(shards_of(rows, 20), CONFIG, fingerprint=PRINT, engine=third, log=log))) == whole
    assert third.asked == 0


def test_a_log_of_another_fingerprint_is_not_replayed(tmp_path: Path) -> None:
    key = (b"c" * 16, 1, b"p" * 8)
    with AnswerLog(tmp_path / "a.jsonl", "one") as log:
        log.add(key, Answer(5, "text", "stop", "", 1, 2, 3))
    with AnswerLog(tmp_path / "a.jsonl", "one") as log:
        assert log.get(key) == Answer(0, "text", "stop", "", 1, 2, 3)
    with AnswerLog(tmp_path / "a.jsonl", "two") as log:
        assert log.get(key) is None


def test_failed_requests_are_not_logged(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with AnswerLog(path, PRINT) as log:
        engine = Told(lambda request: Answer(0, "", "error", error="boom"))
        list(distill([("s", exchanges(3))], CONFIG, fingerprint=PRINT, engine=engine, log=log))
    assert path.read_bytes() == b""


def test_a_stop_yields_the_shards_that_are_done() -> None:
    engine = Counting(Told(lambda request: wire("The tests pass now."), window=2), stop_after=6)
    stream = distill(shards_of(exchanges(40), 2), CONFIG, fingerprint=PRINT, engine=engine, should_stop=engine.stop)
    done: list[str] = []
    with pytest.raises(Interrupted):
        done.extend(shard.name for shard in stream)
    assert 2 <= len(done) < 20


class Counting:
    """Counts what an engine is asked, and asks to stop after some of it."""

    deterministic = True

    def __init__(self, inner: Any, stop_after: int = 1 << 30) -> None:
        self.window: int = inner.window
        self.asked = 0
        self._inner = inner
        self._stop_after = stop_after

    def stop(self) -> bool:
        return self.asked >= self._stop_after

    def identity(self) -> dict[str, Any]:
        return dict(self._inner.identity())

    def submit(self, request: Request) -> None:
        self.asked += 1
        self._inner.submit(request)

    def poll(self, timeout_s: float) -> list[Answer]:
        return list(self._inner.poll(timeout_s))

    def close(self) -> None:
        self._inner.close()


def test_the_fingerprint_knows_what_decides_an_object_and_nothing_else() -> None:
    base = distill_fingerprint(CONFIG, EngineConfig(kind="scripted"))
    same = [
        (replace(CONFIG, generation=9, min_llm_share=0.1, shard_exchanges=7), EngineConfig(kind="scripted")),
        (CONFIG, EngineConfig(kind="scripted", window=3, max_num_seqs=9, delay_ms=5)),
    ]
    other = [
        (replace(CONFIG, min_tokens=13), EngineConfig(kind="scripted")),
        (replace(CONFIG, prompt_tokens=99), EngineConfig(kind="scripted")),
        (CONFIG, EngineConfig(kind="scripted", fail_rate=0.5)),
        (CONFIG, EngineConfig(kind="extractive")),
    ]
    assert {distill_fingerprint(*each) for each in same} == {base}
    assert len({base, *(distill_fingerprint(*each) for each in other)}) == 5


def test_what_was_cut_for_the_budget_is_said_on_the_object() -> None:
    agent = " ".join(f"Then I looked at module number {i}." for i in range(900)) + " The client gives up after 5 s."
    long = make_exchange("Why does the client give up?", agent)
    engine = Told(lambda request: wire())
    config = replace(CONFIG, prompt_tokens=500)
    (shard,) = distill([("s", [long, exchange(0)])], config, fingerprint=PRINT, engine=engine)
    cut, whole = shard.objects
    assert [(f.kind, f.field) for f in cut.findings] == [("cut", "agent_text")]
    gone = int(cut.findings[0].handle.split()[0].replace(",", ""))
    assert 20_000 < gone < len(agent)
    assert whole.findings == ()
    assert (shard.stats.cut, shard.stats.llm) == (1, 2)
