"""Finds the packages that `bench/peers.sh` installed, and says which are missing."""

from __future__ import annotations

import importlib
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

SITE = Path(__file__).with_name(".cache") / "peers"


def peer(name: str) -> Any:
    """The module of a peer, or None (and a line about it) where it is not installed."""
    for folder in SITE.glob("lib/python*/site-packages"):
        # At the end: what the project itself uses comes from its own environment.
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        print(f"  {name} is not installed (bench/peers.sh installs it): left out")
        return None


def version(package: str) -> str:
    """Name and version of an installed package."""
    return f"{package} {metadata.version(package)}"
