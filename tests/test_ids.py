from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.ids import args_digest, canonical_json, content_id, digest_fields, exchange_id, fingerprint, row_hash
from backfill.types import FileTouched, ToolCall

CALL = ToolCall("Bash", b"\x01" * 16)


def test_content_id_is_blake2b_of_length_prefixed_fields() -> None:
    fields = [b"hi", "grüß dich".encode(), b"0", b"Bash", b"\x01" * 16]
    data = b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    assert content_id("hi", "grüß dich", 0, [CALL]) == hashlib.blake2b(data, digest_size=16).digest()


def test_content_id_pins_its_value_across_versions() -> None:
    assert content_id("hi", "there", 0, []).hex() == "613c3fdd787a24e456ac4727a9bcf130"


@pytest.mark.parametrize(
    "other",
    [("hit", "here", 0, []), ("hi", "there", 1, []), ("hi", "there", 0, [CALL]), ("hithere", "", 0, [])],
)
def test_content_id_tells_apart_what_concatenation_would_not(other: tuple[str, str, int, list[ToolCall]]) -> None:
    assert content_id(*other) != content_id("hi", "there", 0, [])


def test_tool_output_and_paths_are_not_in_the_content_id() -> None:
    fuller = ToolCall("Bash", b"\x01" * 16, ("a",), ("read",), "ls", "out", "tail", 9)
    assert content_id("a", "b", 0, [fuller]) == content_id("a", "b", 0, [CALL])


def test_the_same_yes_after_two_exchanges_is_two() -> None:
    yes = content_id("yes", "", 0, [])
    assert len({exchange_id(yes, None), exchange_id(yes, b"a" * 16), exchange_id(yes, b"b" * 16)}) == 3


def test_arguments_digest_ignores_key_order_only() -> None:
    assert args_digest({"a": 1, "b": [2]}) == args_digest({"b": [2], "a": 1})
    assert args_digest({"a": 1}) != args_digest({"a": "1"})


def test_canonical_json_has_sorted_keys_and_no_spaces() -> None:
    assert canonical_json({"b": 1, "a": ["ü", None, True]}) == '{"a":["ü",null,true],"b":1}'.encode()


@given(st.lists(st.binary(max_size=20), max_size=5), st.lists(st.binary(max_size=20), max_size=5))
def test_different_fields_have_different_digests(one: list[bytes], other: list[bytes]) -> None:
    assert (digest_fields(one) == digest_fields(other)) == (one == other)


def test_fingerprint_is_32_hex_digits_and_ignores_order() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert len(fingerprint({})) == 32


def test_row_hash_sees_every_field() -> None:
    from dataclasses import replace

    row = FileTouched("a.py", "read", "tool")
    assert row_hash(replace(row, origin="text")) != row_hash(row)  # type: ignore[arg-type]
