"""The depth of JSON is counted, not found out by falling off Python's stack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.nesting import PARSED_DEPTH, too_deep
from tests.claude_lines import ClaudeFile, read

VALUES = st.recursive(
    st.none() | st.text(alphabet='[]{}"\\x', max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='{["\\', max_size=3), inner, max_size=4)
    ),
    max_leaves=60,
)


def depth(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 1 + max(map(depth, value.values()), default=0) if isinstance(value, dict) else 0


@settings(deadline=None)
@given(VALUES, st.integers(0, 6), st.sampled_from([None, 1]))
def test_the_depth_is_that_of_the_value(value: Any, limit: int, indent: int | None) -> None:
    assert too_deep(json.dumps(value, indent=indent).encode(), limit) == (depth(value) > limit)


@pytest.mark.parametrize("beyond", [0, 1])
def test_the_limit_is_exact(beyond: int) -> None:
    n = PARSED_DEPTH + beyond
    assert too_deep(b'{"a":' * n + b"1" + b"}" * n) == bool(beyond)
    assert not too_deep(b'{"a":"' + b"[" * 5000 + b'"}')


def test_what_is_too_deep_does_not_depend_on_the_caller(tmp_path: Path) -> None:
    def outcomes() -> list[tuple[str, str]]:
        found = []
        for n in (PARSED_DEPTH - 10, PARSED_DEPTH + 10):
            f = ClaudeFile()
            f.user("Go")
            f.raw({**json.loads(f.lines[0]), "uuid": "u2", "toolUseResult": json.loads("[" * n + "]" * n)})
            found.append([(row.state, row.reason) for row in read(tmp_path, f.data()).ledger][-1])
        return found

    def from_below(frames: int, call: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
        return call() if frames == 0 else from_below(frames - 1, call)

    assert from_below(250, outcomes) == outcomes() == [("part_of", ""), ("quarantined", "too_deep")]
