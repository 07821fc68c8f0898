"""Whether an LLM engine may touch a corpus: it needs a recorded PASS, or a word that it goes ungated."""

from __future__ import annotations

from pathlib import Path

import msgspec

from backfill.config import Config
from backfill.errors import ConfigError

LLM_KINDS = ("vllm", "openai")
UNGATED = "UNGATED"


def verdict_of(config: Config, config_folder: Path, fingerprint: str, *, ungated: bool) -> str:
    """PASS, UNGATED, or "" for an engine that needs no gate. Raises ConfigError where a PASS is needed and missing.

    Verdicts stand in `gates/<fingerprint>.json` beside the config; `--ungated` and `gate.required: false` do without.
    """
    if config.engine.kind not in LLM_KINDS:
        return ""
    path = config_folder / "gates" / f"{fingerprint}.json"
    try:
        found = str(msgspec.json.decode(path.read_bytes())["verdict"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        found = ""
    if found == "PASS":
        return found
    if ungated or not config.gate.required:
        return UNGATED
    state = f"its verdict is {found}" if found else "it has no verdict"
    raise ConfigError(
        f"engine {config.engine.kind} with {config.engine.model} may not distill this corpus yet: {state} ({path})",
        hint="pass --ungated, or set gate.required: false, to go on without one",
    )
