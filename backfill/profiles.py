"""Speeds that were measured: what a plan rests on where nobody calibrates.

A profile is a YAML file in `profiles/` beside a config; `load_profiles` reads them, `profile_for` finds the one of an
engine. Deliberately absent: defaults. What was never measured is not guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from backfill.config import EngineConfig, bind
from backfill.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Profile:
    """Speeds of one engine on one machine; rates are of one worker, seconds are wall time.

    `requests_s` counts answers with a full window (exchanges, of the extractive distiller), `tokens_in` and
    `tokens_out` are means a request, `requests_per_item` counts retries. `error` is the relative half width that hours
    get. `measured` says when, on how many, and by which command.
    """

    name: str
    machine: str
    measured: str
    kind: str
    model: str = ""
    requests_s: float = 0.0
    load_s: float = 0.0
    requests_per_item: float = 1.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    claims_per_window: float = 3.0
    scan_mb_s: float = 0.0
    embed_texts_s: float = 0.0
    embed_load_s: float = 0.0
    merge_exchanges_s: float = 0.0
    merge_load_s: float = 0.0
    rss_bytes: int = 0
    error: float = 0.4


def load_profiles(folder: Path) -> list[Profile]:
    """The profiles of a folder, by file name; none where there is no folder. Raises ConfigError for a damaged one."""
    return [_load(path) for path in sorted(folder.glob("*.yaml"))]


def profile_for(profiles: list[Profile], engine: EngineConfig) -> Profile | None:
    """The profile of the same kind of engine and the same model."""
    return next((p for p in profiles if (p.kind, p.model) == (engine.kind, engine.model)), None)


def around(profiles: list[Profile]) -> Profile | None:
    """What merging took where any engine was measured: it depends on the machine, and no engine takes part in it."""
    found = next((profile for profile in profiles if profile.merge_exchanges_s), None)
    return found and replace(found, rss_bytes=0)


def _load(path: Path) -> Profile:
    try:
        tree: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"the profile {path} cannot be read: {str(error).replace(chr(10), ' ')}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"the profile {path} must hold a mapping at its top")
    return bind(Profile, tree, str(path))
