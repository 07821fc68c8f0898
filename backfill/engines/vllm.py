"""The vLLM engine, seen from the run: a child process that is asked through pipes.

The child (`backfill.engines.vllm_child`) starts with the first request, in a session of its own, so that Ctrl-C
reaches the run only. Its prints go to a log file, whose tail goes into errors. Deliberately absent: restarting; a
death is an EngineError with `retryable`, and `backfill.engines.supervised` decides.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from backfill.config import EngineConfig
from backfill.engines import frames
from backfill.engines.base import Answer, Request
from backfill.engines.identity import vllm_identity
from backfill.engines.model_files import local_model
from backfill.engines.outlines_memo import BYTES_VARIABLE
from backfill.engines.sizing import Choice, sized
from backfill.errors import EngineError, ModelError

CLOSE_GRACE_S = 5.0
_READ_BYTES = 1 << 20
_TAIL_BYTES = 2000


class VllmEngine:
    """vLLM with a structured-output backend in a child process. Not thread-safe.

    `log_path` takes the child's output (a temporary file by default); `started` says what runs once it runs.
    `child` is the module that the child runs.
    """

    deterministic = False

    def __init__(
        self, config: EngineConfig, log_path: Path | None = None, *, child: str = "backfill.engines.vllm_child"
    ) -> None:
        self.started: frames.Ready | None = None
        self._config = config
        self._choices: tuple[Choice, ...] | None = None
        self._child = child
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._inbox = bytearray()
        self._outbox = bytearray()
        self._answers: list[Answer] = []
        self._in_flight: set[int] = set()
        self._heard = time.monotonic()
        self._death = ""
        self._decoder = msgspec.msgpack.Decoder(frames.ToParent)

    @property
    def window(self) -> int:
        """Requests to keep in flight: what runs at once, and a quarter more to take the place of what ends."""
        return self._config.window or math.ceil(1.25 * self._size().max_num_seqs)

    def _size(self) -> EngineConfig:
        if self._choices is None:
            self._config, self._choices = sized(self._config)
        return self._config

    def record(self) -> dict[str, Any]:
        """What runs: device, dtype, versions, and the settings that were chosen; nothing of it is in a fingerprint."""
        if self.started is None:
            return {"engine": "vllm"}
        config = self._size()
        sizes = {name: getattr(config, name) for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens")}
        sizes["prompt_lookup_tokens"] = config.prompt_lookup_tokens
        chosen = [{"name": c.name, "value": c.value, "reason": c.reason} for c in self._choices or ()]
        started = msgspec.to_builtins(self.started)
        started.pop("type", None)
        return {"engine": "vllm", **started, **sizes, "window": self.window, "settings": chosen}

    def identity(self) -> dict[str, Any]:
        """Digests of the model's files and the sampling; reads the files, starts nothing. Raises ModelError."""
        return vllm_identity(self._config, local_model(self._config.model))

    @property
    def process_id(self) -> int | None:
        """The child's process id while it runs."""
        return self._process.pid if self._process else None

    def submit(self, request: Request) -> None:
        """Queues a request; the first one loads the model, which takes 15 s to minutes.

        Raises ModelError where the model does not load, EngineError where the child is dead.
        """
        if self._process is None:
            if self.started is not None:
                raise EngineError("the engine is closed")
            self._start()
        if self._death:
            raise self._error()
        ask = frames.Ask(request.key, request.system, request.user, request.schema, request.max_tokens)
        self._outbox += frames.pack(ask)
        self._in_flight.add(request.key)
        self._pump(0)

    def poll(self, timeout_s: float) -> list[Answer]:
        """Answers that are ready, waiting at most `timeout_s` for the first. Raises EngineError once it is dead."""
        deadline = time.monotonic() + timeout_s
        while self._process is not None:
            self._pump(0 if self._answers else max(0.0, deadline - time.monotonic()))
            if self._answers:
                break
            if self._death:
                raise self._error()
            now = time.monotonic()
            if self._in_flight and now - self._heard > self._config.step_timeout_s:
                self._kill(f"gave no sign of life for {self._config.step_timeout_s:g} s")
                raise self._error()
            if now >= deadline:
                break
        ready, self._answers = self._answers, []
        return ready

    def close(self) -> None:
        """Asks the child to stop, kills it after a grace, and frees the pipes; safe to call twice."""
        process, self._process = self._process, None
        self._in_flight.clear()
        self._outbox.clear()
        if process is None:
            return
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(CLOSE_GRACE_S if not self._death else 0.1)
        except subprocess.TimeoutExpired:
            _kill_group(process)
        if process.stdout:
            process.stdout.close()

    def _start(self) -> None:
        directory = local_model(self._config.model)
        self._size()
        if self._log_path is None:
            handle, name = tempfile.mkstemp(prefix="backfill-engine-", suffix=".log")
            os.close(handle)
            self._log_path = Path(name)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._child],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=engine_environment(self._config),
                bufsize=0,
            )
        if self._process.stdin is None or self._process.stdout is None:
            raise EngineError("the engine process has no pipes")
        os.set_blocking(self._process.stdin.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._outbox += frames.pack(start_message(self._config, directory))
        self._await_ready()

    def _await_ready(self) -> None:
        deadline = time.monotonic() + self._config.load_timeout_s
        while self.started is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self._kill(f"did not load the model within {self._config.load_timeout_s:g} s")
            else:
                self._pump(left_s)
            if self._death:
                error = self._error()
                error.retryable = False  # what does not start once does not start again by itself
                self.close()
                raise error

    def _pump(self, timeout_s: float) -> None:
        """Writes what the pipe takes and reads what is there, waiting at most `timeout_s` for something to read."""
        self._flush()
        process = self._process
        if process is None or process.stdout is None or self._death:
            return
        wait_s = timeout_s if not self._outbox else min(timeout_s, 0.05)
        if not self._selector.select(wait_s):
            self._flush()
            return
        data = os.read(process.stdout.fileno(), _READ_BYTES)
        if not data:
            self._death = _ending(process)
            return
        self._heard = time.monotonic()
        self._inbox += data
        try:
            messages = [self._decoder.decode(body) for body in frames.split(self._inbox)]
        except (ValueError, msgspec.DecodeError) as error:
            self._kill(f"sent what is no message ({error})")
            return
        for message in messages:
            self._take(message)

    def _flush(self) -> None:
        process = self._process
        if process is None or process.stdin is None or not self._outbox:
            return
        try:
            written = os.write(process.stdin.fileno(), self._outbox)
        except BlockingIOError:
            return
        except (BrokenPipeError, ValueError):
            self._outbox.clear()  # the end of its output, read next, says how it died
            return
        del self._outbox[:written]

    def _take(self, message: frames.ToParent) -> None:
        if isinstance(message, frames.Done):
            self._in_flight.discard(message.key)
            self._answers.append(
                Answer(
                    message.key,
                    message.text,
                    message.finish_reason,
                    message.error,
                    message.tokens_in,
                    message.tokens_out,
                    message.tokens_cached,
                )
            )
        elif isinstance(message, frames.Ready):
            self.started = message
        elif isinstance(message, frames.Refused):
            hint = f"the engine's log is {self._log_path}"
            self.close()
            kind = ModelError if message.kind == "model" else EngineError
            raise kind(f"the model {self._config.model} does not load: {message.message}", hint=hint)

    def _kill(self, why: str) -> None:
        self._death = why
        if self._process is not None:
            _kill_group(self._process)

    def _error(self) -> EngineError:
        tail = _tail(self._log_path)
        text = f"the engine process {self._death}" + (f"; its last lines:\n{tail}" if tail else "")
        return EngineError(text, hint=f"the engine's log is {self._log_path}", retryable=True)


def start_message(config: EngineConfig, directory: Path) -> frames.Start:
    """What the child is told about the model in `directory` and about sampling."""
    return frames.Start(
        model=str(directory),
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        gpu_memory_utilization=config.gpu_memory_utilization,
        enforce_eager=config.enforce_eager,
        structured_backend=config.structured_backend,
        enable_thinking=config.enable_thinking,
        temperature=config.temperature,
        frequency_penalty=config.frequency_penalty,
        seed=config.seed,
        prompt_lookup_tokens=config.prompt_lookup_tokens,
    )


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """The child's environment: one process, offline, all cores of a CPU. GPUs are those that the launcher left us."""
    ours = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(max(1, round(config.kv_cache_gib))),
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        # A grammar takes 2 to 6 s of one free core; the default of 5 s fails every request on a busy machine.
        "VLLM_REGEX_COMPILATION_TIMEOUT_S": "120",
        "VLLM_NO_USAGE_STATS": "1",
        BYTES_VARIABLE: str(config.mask_memo_bytes),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONUNBUFFERED": "1",
    }
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {**inherited, **ours, "PYTHONPATH": os.pathsep.join(paths)}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(CLOSE_GRACE_S)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        return "closed its output"
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"


def _tail(path: Path | None) -> str:
    if path is None or not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").strip()
