"""`merge --reembed`: vectors of the first input's encoder for all, and what that encoder cut is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backfill import reembed
from backfill.inputs import Input, read_bundle
from backfill.merge import merge, merge_inputs
from tests.test_merge import DIM, canonical_files, make_settings, month_sets, put, union_of, vector

pytestmark = pytest.mark.usefixtures("no_fsync")


class Short:
    """An encoder that reads ten characters, with the vectors of `tests.test_merge`."""

    dim = DIM

    def __init__(self) -> None:
        self.n_cut = 0

    def encode(self, texts: list[str], *, kind: str) -> np.ndarray[Any, Any]:
        self.n_cut += sum(len(text) > 10 for text in texts)
        return np.stack([vector(text) for text in texts])

    def truncated(self) -> int:
        return self.n_cut


def two_encoders(tmp_path: Path) -> list[Path]:
    """A bundle, and one whose vectors are of another encoder; a text of the second is cut."""
    sets = month_sets("2026-04", "two")
    sets["objects"] = [replace(sets["objects"][0], exchange_core="longer than ten characters")]
    put(union_of(month_sets("2026-02", "one")), tmp_path / "a")
    other = make_settings(encoder={**(make_settings().encoder or {}), "sha256": "1" * 64})
    merge_inputs([Input("b", union_of(sets), other, [tmp_path / "encoder.json"])], tmp_path / "b", {"kind": "test"}, "")
    put(union_of(sets), tmp_path / "wanted")
    return [tmp_path / "a", tmp_path / "b"]


def unread(path: Path) -> Any:
    raise AssertionError(path)


def test_what_the_encoder_cut_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = two_encoders(tmp_path)
    monkeypatch.setattr(reembed, "_encoder", lambda first, trust: Short())
    record = merge(paths, tmp_path / "m", unread, reembed=True)
    assert record["truncated"] == 1
    merge([tmp_path / "a", tmp_path / "wanted"], tmp_path / "same", unread)
    assert canonical_files(tmp_path / "m") == canonical_files(tmp_path / "same")


def test_nothing_is_counted_where_nothing_is_embedded(tmp_path: Path) -> None:
    a, _ = two_encoders(tmp_path)
    assert merge([a, tmp_path / "wanted"], tmp_path / "m", unread, reembed=True)["truncated"] == 0
    assert read_bundle(tmp_path / "m").union.vectors
