"""Array files: round trips, canonical bytes, and headers that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from backfill.arrays import ALIGN_BYTES, MAX_HEADER_BYTES, file_offset, open_arrays, release, write_arrays
from backfill.errors import BundleError

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
NAMES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
ARRAYS = st.dictionaries(
    NAMES,
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    ),
    max_size=5,
)
RELAXED = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@RELAXED
@given(arrays=ARRAYS)
def test_what_is_written_is_read(tmp_path: Path, arrays: dict[str, Any]) -> None:
    path = tmp_path / "x.arrays"
    assert write_arrays(path, arrays) == path.stat().st_size
    found = open_arrays(path)
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable or array.size == 0


def test_order_byte_order_and_memory_layout_change_no_byte(tmp_path: Path) -> None:
    a, b = np.arange(6, dtype="<i4").reshape(2, 3), np.array([1.5, 2.5], "<f8")
    write_arrays(tmp_path / "1", {"a": a, "b": b})
    write_arrays(tmp_path / "2", {"b": b.astype(">f8"), "a": np.asfortranarray(a)})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_layout_is_that_of_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    arrays = {"b": np.arange(3, dtype=np.uint8), "a": np.arange(4, dtype=np.int64), "c": np.zeros((2, 0), np.float16)}
    write_arrays(tmp_path / "x", arrays)
    found = safetensors.load_file(tmp_path / "x")
    assert {name: array.tolist() for name, array in found.items()} == {k: v.tolist() for k, v in arrays.items()}
    data = (tmp_path / "x").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    assert start % ALIGN_BYTES == 0
    assert data[start : start + 32] == arrays["a"].tobytes()


@pytest.mark.parametrize("name", ["", "__metadata__", "ä", "a\nb", "x" * 129])
def test_a_name_that_does_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name an array"):
        write_arrays(tmp_path / "x", {name: np.zeros(1)})


def test_a_dtype_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        write_arrays(tmp_path / "x", {"a": np.array(["text"])})


def raw(path: Path, header: Any, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGN_BYTES)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"data_offsets": [begin, end], "dtype": dtype, "shape": [end - begin] if shape is None else shape}


def test_the_hand_made_file_is_taken(tmp_path: Path) -> None:
    found = open_arrays(raw(tmp_path / "x", {"a": entry(0, 2), "b": entry(2, 4)}, b"\1\2\3\4"))
    assert found["b"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"a": entry(0, 9)}, b"1234", "do not cover"),
        ({"a": entry(0, 2)}, b"1234", "do not cover"),
        ({"a": entry(0, 2), "b": entry(0, 2)}, b"1234", "overlap"),
        ({"a": entry(2, 4), "b": entry(0, 2)}, b"1234", "order"),
        ({"b": entry(2, 4), "a": entry(0, 2)}, b"1234", "order"),
        ({"a": entry(0, 4, "C64")}, b"1234", "unknown dtype"),
        ({"a": entry(0, 4, "I32", [-1])}, b"1234", "impossible shape"),
        ({"a": entry(0, 4, "I32", [2**40, 2**40])}, b"1234", "impossible shape"),
        ({"a": entry(0, 4, "U8", [1] * 9)}, b"1", "impossible shape"),
        ({"a": entry(0, 4, "U8", [2])}, b"12", "order"),
        ({"__metadata__": entry(0, 1)}, b"1", "cannot name"),
        ({"a": {"dtype": "U8"}}, b"", "not a list of arrays"),
        ({"a": {**entry(0, 1), "extra": 1}}, b"1", "not a list of arrays"),
        (b'{"a":' + b"[" * 100_000, b"", "not a list of arrays"),
        (b"\xff\xfe", b"", "not a list of arrays"),
        (b'{"a":{"data_offsets":[0,1],"dtype":"U8","shape":[1]},"a":{"data_offsets":[0,1],"dtype":"U8","shape":[1]}}',
         b"1", "order"),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        open_arrays(raw(tmp_path / "x", header, data))


@pytest.mark.parametrize("size", [MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1, 500])
def test_a_header_larger_than_the_file_or_the_limit_is_not_read(tmp_path: Path, size: int) -> None:
    (tmp_path / "x").write_bytes(size.to_bytes(8, "little") + b"{}")
    with pytest.raises(BundleError, match="header does not fit"):
        open_arrays(tmp_path / "x")


@pytest.mark.parametrize("data", [b"", b"123"])
def test_a_stub_of_a_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(BundleError, match="header does not fit"):
        open_arrays(tmp_path / "x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"cannot read gone\.arrays"):
        open_arrays(tmp_path / "gone.arrays")


@RELAXED
@given(data=st.data())
def test_no_damaged_byte_escapes_as_another_error(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "x"
    write_arrays(path, {"a": np.arange(7, dtype=np.int32), "b": np.ones((2, 3), np.float16)})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = open_arrays(path)
    except BundleError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(content)


def test_pages_that_are_let_go_of_come_back(tmp_path: Path) -> None:
    array = np.arange(100_000, dtype=np.int32)
    write_arrays(tmp_path / "a", {"a": array})
    mapped = open_arrays(tmp_path / "a")["a"]
    for view in (mapped, mapped[10:20], array):
        release(view)
    assert mapped.tolist() == array.tolist()


def test_the_place_of_an_array_in_its_file_is_known(tmp_path: Path) -> None:
    path = tmp_path / "x.arrays"
    write_arrays(path, {"a": np.arange(5, dtype="<i8"), "b": np.arange(7, dtype="<u2")})
    arrays, data = open_arrays(path), path.read_bytes()
    for array in arrays.values():
        at = file_offset(array)
        assert data[at : at + array.nbytes] == array.tobytes()
    with pytest.raises(ValueError, match="no file"):
        file_offset(np.zeros(3))
