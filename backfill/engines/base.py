"""The engine protocol: prompts in, texts out, in any order.

An engine is driven by `submit` and `poll`; the distillation loop keeps `window` requests in flight and never waits
for a particular one. A request that the engine rejects or loses comes back as an `Answer` with `error` set: one bad
request never stops another. Implementations: `vllm` (child process), `openai` (any server), `scripted`
(tests). The extractive distiller is no engine in this sense, for it reads exchanges, not prompts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt. `schema` is the JSON schema (as a string) that constrains the answer, `max_tokens` its bound."""

    key: int
    system: str
    user: str
    schema: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for `key`. `finish_reason` is stop, length or error; with error, `error` says what happened.

    `tokens_in`, `tokens_out` and `tokens_cached` (prefix cache hits) are counts of the model's own tokens.
    """

    key: int
    text: str
    finish_reason: str
    error: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0


class Engine(Protocol):
    """A text engine. Not thread-safe: one loop drives it."""

    @property
    def window(self) -> int:
        """Requests to keep in flight."""
        ...

    @property
    def deterministic(self) -> bool:
        """True where the answer is a function of the request alone; such answers are not cached."""
        ...

    def identity(self) -> dict[str, Any]:
        """What goes into the fingerprint: weights, tokenizer, chat template, sampling. No hosts, no batch sizes."""
        ...

    def record(self) -> dict[str, Any]:
        """What runs, for the lineage: device, versions, settings that were chosen. Plain JSON."""
        ...

    def submit(self, request: Request) -> None:
        """Hands over a request. Raises EngineError when the engine is dead."""
        ...

    def poll(self, timeout_s: float) -> list[Answer]:
        """Answers that are ready, waiting at most `timeout_s` for the first. Raises EngineError when it died."""
        ...

    def close(self) -> None:
        """Stops the engine and frees its device; safe to call twice."""
        ...
