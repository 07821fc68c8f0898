"""Whether an LLM engine may touch a corpus: it needs a recorded PASS, or a word that it goes ungated.

`judge` turns what was counted over a sample into a verdict, `record` writes it to `gates/<fingerprint>.json` beside a
config, `verdict_of` reads it there. Deliberately absent: asking engines (`gate_run`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from backfill.config import Config, GateConfig
from backfill.durable import make_dirs, replace_file
from backfill.errors import ConfigError

LLM_KINDS = ("vllm", "openai")
UNGATED = "UNGATED"
PASS, MARGINAL, FAIL = "PASS", "MARGINAL", "FAIL"
FOLDER = "gates"


@dataclass(slots=True)
class Tally:
    """What was counted over the first answers of an engine, before the ladder.

    `n` exchanges were asked about, `made` answers gave an object; the counts are of handles or findings in these, of
    secrets in all answers. `schema_failures` gave none: not the schema, cut off, an error, or (`ungrounded`) words of
    another text. `distilled_tokens` and `reference_tokens` sum tokens_est over the same exchanges. `claims` are those
    of a sample of windows, judged by the same rules.
    """

    n: int = 0
    made: int = 0
    invented: int = 0
    mangled: int = 0
    dropped: int = 0
    absence: int = 0
    bloat: int = 0
    leak: int = 0
    secrets: int = 0
    schema_failures: int = 0
    ungrounded: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    distilled_tokens: int = 0
    reference_tokens: int = 0
    seconds: float = 0.0
    timed: int = 0
    tier_counts: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)

    @property
    def density(self) -> float:
        """Distilled tokens in units of the reference's; 0 where nothing was made."""
        return self.distilled_tokens / self.reference_tokens if self.reference_tokens else 0.0


def judge(tally: Tally, rules: GateConfig, doubts: float = 0.0) -> tuple[str, list[str]]:
    """The verdict and its reasons. `doubts` are objects of a hundred that most auditors doubt.

    Raises nothing; a tally without an object is a FAIL, for nothing is known of it.
    """
    if not tally.made:
        return FAIL, [f"no answer of {tally.n} gave an object"]
    rate = 100 / tally.n
    failing: list[str] = []
    marginal: list[str] = []
    for name, count, limit in (
        ("invented", tally.invented, rules.fail_invented),
        ("mangled", tally.mangled, rules.fail_mangled),
        ("secrets", tally.secrets, rules.fail_secrets),
    ):
        if count:
            line = f"{count} {name} in {tally.n} answers ({count * rate:.1f} per 100, FAIL from {limit:g})"
            (failing if count * rate >= limit else marginal).append(line)
    failed = tally.schema_failures * rate
    if failed > rules.max_failures:
        line = f"{tally.schema_failures} of {tally.n} answers gave no object ({failed:.0f} per 100)"
        (failing if failed >= rules.fail_failures else marginal).append(line)
    if tally.density > rules.max_density:
        marginal.append(f"density {tally.density:.2f} of the reference, more than {rules.max_density:g}")
    if doubts > rules.max_doubts:
        marginal.append(f"most auditors doubt {doubts:.0f} of 100 objects")
    if failing:
        return FAIL, failing + marginal
    return (MARGINAL, marginal) if marginal else (PASS, [])


def record(folder: Path, fingerprint: str, tree: dict[str, Any]) -> Path:
    """Writes a verdict to `gates/<fingerprint>.json` in a folder, atomically; returns its path."""
    path = folder / FOLDER / f"{fingerprint}.json"
    make_dirs(path.parent)
    replace_file(path, msgspec.json.format(msgspec.json.encode(tree, order="sorted"), indent=1) + b"\n")
    return path


def verdict_of(config: Config, config_folder: Path, fingerprint: str, *, ungated: bool) -> str:
    """PASS, UNGATED, or "" for an engine that needs no gate. Raises ConfigError where a PASS is needed and missing.

    Verdicts stand in `gates/<fingerprint>.json` beside the config; `--ungated` and `gate.required: false` do without.
    """
    if config.engine.kind not in LLM_KINDS:
        return ""
    path = config_folder / FOLDER / f"{fingerprint}.json"
    try:
        found = str(msgspec.json.decode(path.read_bytes())["verdict"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        found = ""
    if found == PASS:
        return found
    if ungated or not config.gate.required:
        return UNGATED
    state = f"its verdict is {found}" if found else "it has no verdict"
    raise ConfigError(
        f"engine {config.engine.kind} with {config.engine.model} may not distill this corpus yet: {state} ({path})",
        hint="run `backfill gate CONFIG --sample N`; or pass --ungated, or set gate.required: false, to go without",
    )
