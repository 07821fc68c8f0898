"""Where the checks of Triton kernels run: on CUDA, or on the CPU in Triton's interpreter (a process of its own).

`device_*.py` hold the checks. pytest does not collect them by itself: test_interpreted.py runs them in a process with
TRITON_INTERPRET=1, and bench/gpu_check.sh runs them on a GPU.
"""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
if not INTERPRETED and not torch.cuda.is_available():
    pytest.skip("neither CUDA nor TRITON_INTERPRET=1", allow_module_level=True)


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kernel does not write shows: fresh memory holds NaN, or the least integer."""
    plain = torch.empty

    def empty(*size: object, **names: object) -> object:
        out = plain(*size, **names)
        return out.fill_(float("nan") if out.is_floating_point() else torch.iinfo(out.dtype).min)

    monkeypatch.setattr(torch, "empty", empty)
