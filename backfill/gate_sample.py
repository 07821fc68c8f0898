"""The sample that engines are judged over: chosen by content, so that every machine and every engine has the same.

Reads the sources of the configurations into a scratch folder. Deliberately absent: engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backfill.config import Config
from backfill.errors import UsageError
from backfill.ids import digest_fields, row_bytes
from backfill.ingest import ShouldStop, read_new
from backfill.seen import Seen
from backfill.types import Exchange
from backfill.windows import Window

# A window holds some four exchanges and its answer is longer: a quarter of them costs about as much again.
WINDOW_SHARE = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """Exchange rows and windows, in the order of their digests; `digest` names the rows (16 bytes)."""

    rows: tuple[Exchange, ...]
    windows: tuple[Window, ...]
    digest: bytes


def choose(rows: Sequence[Exchange], windows: Sequence[Window], size: int, min_tokens: int) -> Sample:
    """The `size` contents with the least content_id among those of at least `min_tokens` (all, where there are fewer).

    content_id is a hash, so the least are a random sample, and one that grows with `size`. Of rows with one content
    the fullest is taken.
    """
    by_content: dict[bytes, Exchange] = {}
    for row in rows:
        held = by_content.get(row.content_id)
        if row.tokens_est >= min_tokens and (held is None or row_bytes(row) > row_bytes(held)):
            by_content[row.content_id] = row
    chosen = [by_content[key] for key in sorted(by_content)[:size]]
    by_digest = {digest_fields([row.content_id for row in window.exchanges]): window for window in windows}
    eligible = {
        key: window for key, window in by_digest.items() if any(r.tokens_est >= min_tokens for r in window.exchanges)
    }
    taken = sorted(eligible)[: -(-len(chosen) // WINDOW_SHARE)]
    return Sample(tuple(chosen), tuple(eligible[k] for k in taken), digest_fields([r.content_id for r in chosen]))


def sample_of(configs: Sequence[Config], size: int, should_stop: ShouldStop) -> Sample:
    """The sample of all sources that the configurations name, read as the first of them says.

    Raises UsageError where no source is named or none holds an exchange.
    """
    sources = list(dict.fromkeys(source for config in configs for source in config.sources))
    if not sources:
        raise UsageError("no sources", hint="name some in the config, or pass --source PATH")
    read = read_new([Path(source).absolute() for source in sources], Seen(), configs[0], should_stop)
    sample = choose(read.exchanges, read.windows, size, configs[0].distill.min_tokens)
    if not sample.rows:
        raise UsageError(f"no exchange of {configs[0].distill.min_tokens} tokens or more in {', '.join(sources)}")
    return sample
