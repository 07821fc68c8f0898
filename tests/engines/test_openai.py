"""The OpenAI-compatible engine against a server of ours: what is sent, what is tried again, and what is not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest
from openai_server import Server, running

from backfill.config import EngineConfig
from backfill.engines import make_engine
from backfill.engines.base import Answer, Engine, Request
from backfill.engines.openai import OpenAIEngine, is_loopback
from backfill.engines.openai_replies import MAX_RETRY_AFTER_S, answer_of, pause, retry_after_s
from backfill.errors import ConfigError, EngineError
from backfill.schema import WIRE_SCHEMA

pytest.importorskip("httpx")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.engines.openai_replies.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("backfill.engines.openai_replies.MAX_PAUSE_S", 0.02)


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as made:
        yield made


def config_of(server: Server, **changed: object) -> EngineConfig:
    settings = {"kind": "openai", "model": "m", "base_url": server.url, "concurrency": 4, "step_timeout_s": 20.0}
    return EngineConfig(**{**settings, **changed})  # type: ignore[arg-type]


def ask(engine: Engine, *texts: str, limit_s: float = 20) -> dict[str, Answer]:
    """The answers to some prompts, by prompt."""
    for key, text in enumerate(texts):
        engine.submit(Request(key, "Instruction.", text, WIRE_SCHEMA, 32))
    done: list[Answer] = []
    deadline = time.monotonic() + limit_s
    while len(done) < len(texts) and time.monotonic() < deadline:
        done += engine.poll(0.2)
    assert len(done) == len(texts)
    return {texts[answer.key]: answer for answer in done}


@pytest.fixture
def engine(server: Server) -> Iterator[Engine]:
    made = make_engine(config_of(server))
    yield made
    made.close()


def test_what_is_sent(server: Server, engine: Engine) -> None:
    answer = ask(engine, "Fence ~~~~ <|im_end|> and text.")["Fence ~~~~ <|im_end|> and text."]
    assert (answer.error, answer.finish_reason) == ("", "stop")
    assert (answer.tokens_in, answer.tokens_out, answer.tokens_cached) == (9, 7, 4)
    (body,) = server.bodies
    assert body["messages"] == [
        {"role": "system", "content": "Instruction."},
        {"role": "user", "content": "Fence ~~~~ < |im_end|> and text."},
    ]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m", 32, 0.0)
    assert body["response_format"]["type"] == "json_schema"
    assert body["response_format"]["json_schema"]["schema"] == json.loads(WIRE_SCHEMA)
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "thinking": False}
    assert not {"seed", "frequency_penalty"} & set(body)
    assert server.keys == [None]


def test_the_switches_are_sent(server: Server) -> None:
    config = config_of(server, temperature=0.5, seed=3, frequency_penalty=0.1, template_kwargs=False)
    engine = make_engine(config)
    ask(engine, "Hello there.")
    engine.close()
    (body,) = server.bodies
    assert (body["temperature"], body["seed"], body["frequency_penalty"]) == (0.5, 3, 0.1)
    assert "chat_template_kwargs" not in body


def test_the_key_comes_from_the_variable_and_shows_nowhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "sesame-open")
    engine = make_engine(config_of(server, api_key_env="OUR_KEY"))
    ask(engine, "Hello there.")
    engine.close()
    assert server.keys == ["Bearer sesame-open"]
    assert "sesame" not in json.dumps(engine.identity())
    monkeypatch.delenv("OUR_KEY")
    with pytest.raises(ConfigError, match="OUR_KEY"):
        make_engine(config_of(server, api_key_env="OUR_KEY")).submit(Request(0, "", "x", "", 1))


def test_what_may_pass_is_tried_again_and_what_may_not_is_not(server: Server, engine: Engine) -> None:
    done = ask(
        engine, "Fine so far.", "BUSY now", "FLAKY now", "CUT off", "REFUSE this", "BROKEN for good", "PROSE only"
    )
    assert {text for text, answer in done.items() if not answer.error} == set(done) - {
        "REFUSE this", "BROKEN for good", "PROSE only",
    }  # fmt: skip
    tries = {text.split()[0]: n for text, n in server.seen.items()}
    assert tries == {"Fine": 1, "BUSY": 2, "FLAKY": 3, "CUT": 2, "REFUSE": 1, "BROKEN": 8, "PROSE": 1}
    assert "HTTP 400" in done["REFUSE this"].error
    assert "HTTP 500" in done["BROKEN for good"].error
    assert "no chat completion" in done["PROSE only"].error


def test_a_wish_of_the_server_is_heeded(server: Server, engine: Engine) -> None:
    began = time.monotonic()
    ask(engine, "BUSY for a while")
    assert time.monotonic() - began >= 0.1


def test_no_more_run_at_once_than_asked_for(server: Server) -> None:
    engine = make_engine(config_of(server, concurrency=3))
    ask(engine, *[f"Prompt number {i}." for i in range(20)])
    engine.close()
    assert 1 < server.most_at_once <= 3
    assert engine.window == 4


def test_a_reply_without_end_is_not_read_to_its_end(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.engines.openai.MAX_REPLY_BYTES", 1000)
    assert "more than 1000 bytes" in ask(engine, "HUGE thing")["HUGE thing"].error


def test_a_slow_server_is_given_up_after_its_time(server: Server) -> None:
    engine = make_engine(config_of(server, step_timeout_s=0.3))
    engine.submit(Request(0, "", "HANG on", "", 8))
    with pytest.raises(EngineError, match="does not answer: ReadTimeout"):
        for _ in range(20):
            engine.poll(0.5)
    engine.close()


@pytest.mark.parametrize("changed", [{"model": "FORBID"}, {"path": "/v2"}])
def test_what_every_prompt_would_be_told_ends_the_engine(server: Server, changed: dict[str, str]) -> None:
    path = changed.pop("path", "")
    engine = make_engine(config_of(server, base_url=server.url.replace("/v1", path or "/v1"), **changed))
    engine.submit(Request(0, "", "Hello.", "", 8))
    with pytest.raises(EngineError, match="refuses every prompt: HTTP 40") as caught:
        for _ in range(50):
            engine.poll(0.2)
    assert not caught.value.retryable
    with pytest.raises(EngineError, match="refuses every prompt"):
        engine.submit(Request(1, "", "Hello.", "", 8))
    engine.close()


def test_a_server_that_is_not_there_is_one_clear_error(server: Server) -> None:
    with running() as gone:
        config = config_of(gone)
    engine = make_engine(config)
    engine.submit(Request(0, "", "Hello.", "", 8))
    with pytest.raises(EngineError, match=r"does not answer: ConnectError"):
        for _ in range(50):
            engine.poll(0.2)
    engine.close()


def test_a_server_that_always_fails_ends_the_run(server: Server, engine: Engine) -> None:
    with pytest.raises(EngineError, match="does not answer: HTTP 500"):
        ask(engine, *[f"BROKEN number {i}" for i in range(12)])


def test_closing_does_not_wait_for_what_is_in_flight(engine: Engine) -> None:
    engine.submit(Request(0, "", "HANG on", "", 8))
    time.sleep(0.1)
    began = time.monotonic()
    engine.close()
    assert time.monotonic() - began < 1
    with pytest.raises(EngineError, match="closed"):
        engine.submit(Request(1, "", "Hello.", "", 8))


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"base_url": "http://example.com/v1"}, "another machine"),
        ({"base_url": "http://127.0.0.1.example.com/v1"}, "another machine"),
        ({"base_url": "http://10.0.0.7:8000/v1"}, "another machine"),
        ({"base_url": "file:///etc/passwd"}, "no http"),
        ({"base_url": ""}, "no http"),
        ({"base_url": "http://user:secret@127.0.0.1/v1"}, "no user"),
        ({"model": ""}, "names no model"),
        ({"concurrency": 0}, "at least 1"),
    ],
)
def test_a_configuration_that_will_not_do(changed: dict[str, object], match: str) -> None:
    settings: dict[str, object] = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1/v1", **changed}
    with pytest.raises(ConfigError, match=match):
        make_engine(EngineConfig(**settings))  # type: ignore[arg-type]


def test_another_machine_is_asked_where_that_is_allowed() -> None:
    config = EngineConfig(kind="openai", model="m", base_url="https://example.com/v1", allow_remote=True)
    assert isinstance(make_engine(config), OpenAIEngine)
    assert is_loopback("http://[::1]:8000/v1")
    assert is_loopback("http://localhost/v1")
    assert not is_loopback("http://localhost.example.com/v1")


def test_addresses_and_keys_are_not_in_the_fingerprint(server: Server) -> None:
    one = make_engine(config_of(server)).identity()
    other = make_engine(
        EngineConfig(kind="openai", model="m", base_url="http://localhost:1/v1", api_key_env="K", concurrency=9)
    )
    assert one == other.identity()
    assert one != make_engine(config_of(server, model="n")).identity()


def test_pauses_grow_and_are_jittered_and_wishes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backfill.engines.openai_replies.FIRST_PAUSE_S", 0.5)
    monkeypatch.setattr("backfill.engines.openai_replies.MAX_PAUSE_S", 30.0)
    for tries, most in ((1, 1.0), (2, 2.0), (9, 30.0)):
        drawn = [pause(tries, None) for _ in range(200)]
        assert 0 < min(drawn) < most / 2 < max(drawn) <= most
    assert 5.0 <= pause(1, 5.0) <= 5.5
    assert pause(1, 9e9) <= MAX_RETRY_AFTER_S + 0.5


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after_s("2.5") == 2.5
    assert retry_after_s("-3") == 0
    assert 55 < (retry_after_s(formatdate(time.time() + 60, usegmt=True)) or 0) <= 60
    assert [retry_after_s(text) for text in ("", "soon", "nan", "inf")] == [None] * 4


def test_replies_of_other_servers() -> None:
    plain = b'{"choices":[{"message":{"content":null},"finish_reason":"length"}],"usage":null,"x":1}'
    assert answer_of(3, plain) == Answer(3, "", "length")
    filtered = b'{"choices":[{"message":{"content":"a"},"finish_reason":"content_filter"}]}'
    assert answer_of(3, filtered).error == "ended by content_filter"
    for data in (b"", b"[]", b'{"choices":[]}', b'{"choices":[{}]}', b"\xff"):
        assert "no chat completion" in answer_of(3, data).error
