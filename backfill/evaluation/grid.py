"""The grid: named configurations in a YAML file, each a few signals, a way to fuse them, and what it is compared with.

A signal is written `KIND TEXTS [key=value ...]`: KIND is stock, bm25, vector or hnsw; TEXTS are text variants joined
by commas (a vector each, the best one counts; bm25 adds them, `files*0.5` at half), a variant is fields joined by `+`.
The committed grid is `grid.yaml` in this folder. Deliberately absent: code in a configuration.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from backfill.errors import ConfigError
from backfill.fusion import FUSIONS, NORMALIZATIONS

KINDS = ("stock", "bm25", "vector", "hnsw")
FIELDS = ("verbatim", "chunks", "core", "context", "rooms", "files", "title", "claims")
PRODUCT_MODES = ("default", "default-words", "distilled-vector", "distilled-bm25", "verbatim-bm25", "claims")
_KEYS = {"name", "signals", "fusion", "normalization", "session", "rrf_k", "against", "better_of", "product", "axis"}
_SIGNAL_KEYS = {"weight": float, "k1": float, "b": float, "m": int, "ef": int}


@dataclass(frozen=True, slots=True)
class Signal:
    """One score for every document. `texts` are the variants; `m` and `ef` belong to hnsw, `k1` and `b` to bm25, and so
    do `shares`, one a variant (none: 1 each)."""

    kind: str
    texts: tuple[str, ...]
    weight: float = 1.0
    k1: float = 1.5
    b: float = 0.75
    m: int = 32
    ef: int = 64
    shares: tuple[float, ...] = ()

    @property
    def distilled(self) -> bool:
        """Whether it reads any distilled text."""
        return any(field not in ("verbatim", "chunks") for text in self.texts for field in text.split("+"))


@dataclass(frozen=True, slots=True)
class Configuration:
    """A ranking by name. `session` lifts a document by that share of its session's best score (0: not at all).

    `against` names the verbatim configuration of the same mechanism. `better_of` stands for the better of some others
    by MRR; `product` for the search that `backfill query` does in a mode.
    """

    name: str
    signals: tuple[Signal, ...] = ()
    fusion: str = "weighted"
    normalization: str = "minmax"
    session: float = 0.0
    rrf_k: int = 60
    against: str = ""
    better_of: tuple[str, ...] = ()
    product: str = ""
    axis: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """Configurations in the order of the file; names are distinct, and `main` ones are always run."""

    configurations: tuple[Configuration, ...]
    main: tuple[str, ...]

    def main_part(self) -> Grid:
        """The main configurations with those that they are compared with or stand for."""
        by_name = {c.name: c for c in self.configurations}
        wanted, queue = set(), list(self.main)
        while queue:
            name = queue.pop()
            if name not in wanted:
                wanted.add(name)
                queue += [n for n in (by_name[name].against, *by_name[name].better_of) if n]
        return Grid(tuple(c for c in self.configurations if c.name in wanted), self.main)


def packaged_grid() -> Path:
    """The grid that the package carries."""
    return Path(__file__).with_name("grid.yaml")


def load_grid(path: Path) -> Grid:
    """Reads a grid. Raises ConfigError naming the configuration that is off."""
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the grid {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {str(error).replace(chr(10), ' ')}") from error
    if not isinstance(tree, dict) or not isinstance(tree.get("configurations"), list):
        raise ConfigError(f"{path} must hold `configurations`, a list, and `main`, a list of names")
    found = tuple(_configuration(entry, path) for entry in tree["configurations"])
    names = [c.name for c in found]
    main = tuple(str(name) for name in tree.get("main") or names)
    for name in [n for c in found for n in (c.against, *c.better_of) if n] + list(main):
        if name not in names:
            raise ConfigError(f"{path} names {name!r}, which it does not define", hint=_nearest(name, names))
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"{path}: two configurations are called {twice[0]!r}")
    return Grid(found, main)


def parse_signal(text: str, where: str) -> Signal:
    """A signal from its written form. Raises ConfigError."""
    kind, _, rest = text.strip().partition(" ")
    if kind not in KINDS:
        raise ConfigError(f"{where}: {kind!r} is no kind of signal", hint=_nearest(kind, KINDS))
    words = rest.split()
    options = [word for word in words if "=" in word]
    texts = tuple(t for t in " ".join(w for w in words if "=" not in w).replace(" ", "").split(",") if t)
    texts, shares = _without_shares(texts, kind, where)
    for field in (field for variant in texts for field in variant.split("+")):
        if field not in FIELDS:
            raise ConfigError(f"{where}: {field!r} is no text", hint=_nearest(field, FIELDS))
    if kind == "stock" and texts:
        raise ConfigError(f"{where}: stock reads the verbatim text and takes no other")
    if kind != "stock" and not texts:
        raise ConfigError(f"{where}: the signal {text!r} names no text")
    values: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in _SIGNAL_KEYS:
            raise ConfigError(f"{where}: unknown option {key!r}", hint=_nearest(key, list(_SIGNAL_KEYS)))
        try:
            values[key] = _SIGNAL_KEYS[key](value)
        except ValueError as error:
            raise ConfigError(f"{where}: {option!r} is no number") from error
    return Signal(kind, texts or ("verbatim",), shares=shares, **values)


def _without_shares(texts: tuple[str, ...], kind: str, where: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The variants and their shares; no shares where all are 1."""
    pairs = [text.partition("*") for text in texts]
    try:
        shares = tuple(float(share) if star else 1.0 for _, star, share in pairs)
    except ValueError as error:
        raise ConfigError(f"{where}: a share in {','.join(texts)!r} is no number") from error
    if kind != "bm25" and any(share != 1.0 for share in shares):
        raise ConfigError(f"{where}: only bm25 adds its texts by shares; of vectors the best one counts")
    return tuple(name for name, _, _ in pairs), () if all(share == 1.0 for share in shares) else shares


def _configuration(entry: Any, path: Path) -> Configuration:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise ConfigError(f"{path}: a configuration without a name: {str(entry)[:80]}")
    where = f"{path}: {entry['name']}"
    unknown = set(entry) - _KEYS
    if unknown:
        key = str(min(unknown))
        raise ConfigError(f"{where}: unknown key {key!r}", hint=_nearest(key, sorted(_KEYS)))
    signals = tuple(parse_signal(str(text), where) for text in entry.get("signals") or ())
    better_of, product = tuple(map(str, entry.get("better_of") or ())), str(entry.get("product") or "")
    if sum(map(bool, (signals, better_of, product))) != 1:
        raise ConfigError(f"{where}: give exactly one of signals, better_of and product")
    fusion = _one_of(str(entry.get("fusion") or "weighted"), FUSIONS, f"{where}: fusion")
    normalization = _one_of(str(entry.get("normalization") or "minmax"), NORMALIZATIONS, f"{where}: normalization")
    if product:
        _one_of(product, PRODUCT_MODES, f"{where}: product")
    return Configuration(
        name=entry["name"],
        signals=signals,
        fusion=fusion,
        normalization=normalization,
        session=float(entry.get("session") or 0.0),
        rrf_k=int(entry.get("rrf_k") or 60),
        against=str(entry.get("against") or ""),
        better_of=better_of,
        product=product,
        axis=str(entry.get("axis") or ""),
    )


def _one_of(value: str, known: Sequence[str], where: str) -> str:
    if value not in known:
        raise ConfigError(f"{where} {value!r} is unknown", hint=_nearest(value, known))
    return value


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
