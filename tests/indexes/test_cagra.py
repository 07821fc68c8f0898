"""CAGRA's way into a bundle, with FAISS's own CPU graph in the place of the GPU's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pytest

from backfill.indexes import ann, cagra

DIM = 32


class Standing:
    """Links the rows on the CPU where the real class copies the links that the GPU found."""

    def __init__(self, resources: Any, dim: int, metric: int, config: Any) -> None:
        assert (dim, metric) == (DIM, faiss.METRIC_INNER_PRODUCT)
        assert config.intermediate_graph_degree >= config.graph_degree == 64

    def train(self, rows: Any) -> None:
        self.rows = rows

    def copyTo(self, index: Any) -> None:  # noqa: N802
        index.add(self.rows)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "GpuIndexCagra": Standing, "GpuIndexCagraConfig": SimpleNamespace, "StandardGpuResources": object,
        "get_num_gpus": lambda: 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(faiss, name, value, raising=False)


def test_without_cuvs_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(faiss, "GpuIndexCagra", raising=False)
    assert not cagra.is_there()


def test_the_graph_of_a_gpu_is_searched_and_gated_like_any_other(gpu: None) -> None:
    dice = np.random.default_rng(3)
    rows = dice.normal(size=(2_000, DIM))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)
    files = [rows[:700], rows[700:]]
    choice = ann.choose(len(rows), DIM, memory_bytes=1 << 30, wanted="hnsw")
    index = ann.build(choice, files, "gpu")
    assert isinstance(index, faiss.IndexHNSWCagra)
    assert ann.gate(index, choice, files, 0.95)[1] >= 0.95
    assert 1_234 in ann.search(index, rows[1_234].astype(np.float32), 10, 128)
