"""The two ways through a document hand out the same values at the same places."""

from __future__ import annotations

import hashlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.sources import document
from backfill.sources.base import Unit
from backfill.sources.document import fields
from backfill.sources.jsonl import Line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", '"{', "[", "h"]), inner, max_size=4)
    ),
    max_leaves=12,
)
OPENED = frozenset(("h",))


def found(data: bytes) -> list[tuple[str, Line]]:
    return list(fields(Unit(io.BytesIO(data), "x", len(data), "UTC", hashlib.blake2b()), OPENED))


def values(data: bytes) -> list[tuple[str, object]]:
    return [(key, json.loads(line.data)) for key, line in found(data)]


def test_fields_and_elements_of_opened_arrays() -> None:
    data = b'{"a": "h", "n": 1, "h": [{"x": "]}"}, 2, [3]], "b": [4], "c": {"h": [5]}}'
    assert values(data) == [("h", {"x": "]}"}), ("h", [3]), ("b", [4]), ("c", {"h": [5]})]
    assert values(b'[{"h": [1]}, 2, "x", []]') == [("", {"h": [1]}), ("", [])]


@given(
    st.dictionaries(st.sampled_from(["a", "b", "h"]), VALUES) | st.lists(VALUES, max_size=4), st.sampled_from([None, 1])
)
def test_both_ways_agree(value: object, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    fast = found(data)
    slow = list(document._scan(io.BytesIO(data).read, len(data), OPENED))
    assert [(key, line.data) for key, line in fast] == [(key, line.data) for key, line in slow]
    assert all(data[line.start : line.end] == line.data for _, line in (*fast, *slow))


def test_large_and_torn_documents_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps({"h": [{"k": k, "t": "\\" * 50} for k in range(100)]}).encode()
    whole = found(data)
    monkeypatch.setattr(document, "_WHOLE_BYTES", 10)
    monkeypatch.setattr(document, "_BLOCK_BYTES", 64)
    assert found(data) == whole
    torn = found(data[:-30])
    assert torn[:-1] == whole[: len(torn) - 1]
    assert not torn[-1][1].closed


def test_a_value_that_is_too_long_ends_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_WHOLE_BYTES", 10)
    monkeypatch.setattr(document, "_BLOCK_BYTES", 64)
    monkeypatch.setattr(document, "MAX_LINE_BYTES", 1000)
    data = json.dumps({"h": [{"ok": 1}, {"long": "x" * 5000}, {"lost": 1}]}).encode()
    first, last = found(data)
    assert first[1].data == b'{"ok": 1}'
    assert (last[1].too_long, last[1].end) == (True, len(data))
