"""Rooms: keys, labels and the rooms of hand-written exchanges."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.rooms import MAX_KEY_CHARS, file_room_key, normalise_key, room_label, rooms_from, rooms_of
from backfill.toolpaths import files_touched
from backfill.types import Exchange, RoomAssignment, ToolCall

KEY = re.compile(r"[^\W_A-Z]+(?:_[^\W_A-Z]+)*")


def _exchange(user: str, agent: str = "", tools: tuple[ToolCall, ...] = (), paths: tuple[str, ...] = ()) -> Exchange:
    return Exchange(b"e" * 16, b"c" * 16, None, user, agent, 0, 2, 99, "", tools, paths)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Retry Timeout", "retry_timeout"),
        ("retry-timeout", "retry_timeout"),
        ("retryTimeout", "retry_timeout"),
        ("Auth", "auth"),
        ("authentication", "auth"),
        ("the Authn", "auth"),
        ("HTTPServer", "http_server"),
        ("The handling of API keys", "handling_api_keys"),
        ("résumé parsing", "resume_parsing"),
        ("重试 超时", "重试_超时"),
        ("ガード", "ガード"),
        ("retry retry", "retry"),
        ("a b c d e f g", "b_c_d_e"),
        ("the of and", ""),
        ("!!!", ""),
    ],
)
def test_normalise_key(text: str, key: str) -> None:
    assert normalise_key(text) == key


def test_labels() -> None:
    assert [room_label(key) for key in ("retry_timeout", "api_key", "resume")] == ["Retry timeout", "API key", "Resume"]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("cmd/cli/clean.go", "cli_clean"),
        ("cmd/cli/clean_test.go", "cli_clean"),
        ("src/retry_policy.py", "retry_policy"),
        ("tests/test_retry_policy.py", "retry_policy"),
        ("web/button.test.tsx", "web_button"),
        ("package.json", "package_json"),
        (".env", "env"),
        ("docker/Dockerfile", "docker_dockerfile"),
    ],
)
def test_file_room_key(path: str, key: str) -> None:
    assert file_room_key(path) == key


def test_rooms_of_an_edit() -> None:
    tools = (ToolCall("Edit", b"", ("src/payments/retry_policy.py",), ("edited",)),)
    exchange = _exchange(
        "The retry timeout is too short, the tests fail. Raise the retry timeout.",
        "Raised the retry timeout to 45 s.",
        tools,
    )
    assert rooms_of(exchange, files_touched(exchange)) == (
        RoomAssignment("file", "retry_policy", "Retry policy", 1.0),
        RoomAssignment("concept", "retry_timeout", "Retry timeout", 0.75),
        RoomAssignment("workflow", "failing_test_repair", "Failing test repair", 0.5),
    )


def test_an_exchange_with_nothing_is_general_conversation() -> None:
    for exchange in (_exchange(""), _exchange("yes", "ok"), _exchange("!!!")):
        assert rooms_of(exchange, ()) == (
            RoomAssignment("concept", "general_conversation", "General conversation", 1.0),
        )


def test_rooms_from_normalises_and_drops_generic_and_repeated_names() -> None:
    rooms = rooms_from(
        [("concept", "Errors"), ("concept", "Retry-Timeout"), ("file", "retry timeout"), ("workflow", "")]
    )
    assert rooms == (RoomAssignment("concept", "retry_timeout", "Retry timeout", 1.0),)
    assert [r.room_key for r in rooms_from([("concept", "bugs")])] == ["general_conversation"]
    many = rooms_from([("concept", f"topic x{n}") for n in range(9)])
    assert [(r.room_key, r.relevance) for r in many] == [("topic_x0", 1.0), ("topic_x1", 0.75), ("topic_x2", 0.5)]


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=200), st.lists(st.text(max_size=30), max_size=3))
def test_any_exchange_has_one_to_three_well_formed_rooms(user: str, agent: str, paths: list[str]) -> None:
    exchange = _exchange(user, agent, paths=tuple(paths))
    rooms = rooms_of(exchange, files_touched(exchange))
    assert 1 <= len(rooms) <= 3
    assert len({room.room_key for room in rooms}) == len(rooms)
    assert [room.relevance for room in rooms] == [1.0, 0.75, 0.5][: len(rooms)]
    assert all(room.room_label and len(room.room_key) <= MAX_KEY_CHARS for room in rooms)


@settings(deadline=None)
@given(st.text(max_size=100))
def test_a_key_is_snake_case_and_stable(text: str) -> None:
    key = normalise_key(text)
    assert key == "" or (KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARS)
