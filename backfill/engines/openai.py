"""Any server that speaks OpenAI's chat completions, such as `vllm serve`.

Requests wait for `concurrency` threads, which send them with the schema as `response_format`. What may pass by itself
(no connection, 408, 429, 5xx) is tried again after a growing, jittered pause or the server's own Retry-After; what a
server says of one prompt (400, 413, 422) comes back as that prompt's error; what it would say of every prompt (401,
403, 404) ends the engine. A server elsewhere is asked only with `allow_remote`, for transcripts are private.
Deliberately absent: streaming, and the API key anywhere but in the header that it is sent in.
"""

from __future__ import annotations

import ipaddress
import math
import os
import queue
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from backfill.config import EngineConfig
from backfill.engines.base import Answer, Request
from backfill.engines.control_marks import COMMON, defuse
from backfill.engines.openai_replies import answer_of, pause, retry_after_s
from backfill.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
MAX_TRIES = 8
# So many prompts given up in a row, none answered between them: the server is broken, not the prompts.
MAX_GIVEN_UP = 8
MAX_REPLY_BYTES = 16 << 20
_AGAIN = frozenset({408, 409, 425, 429})
_FATAL = frozenset({401, 403, 404, 405})
_SCHEMA_NAME = "answer"


class _Passing(Exception):
    """A failure that may pass; `after_s` is the server's own wish, None where it has none."""

    def __init__(self, message: str, *, reached: bool, after_s: float | None = None, limited: bool = False) -> None:
        super().__init__(message)
        self.reached = reached
        self.after_s = after_s
        self.limited = limited


class OpenAIEngine:
    """A client of one server. Threads start and the key is read with the first request.

    Raises ConfigError for a URL that is none, that is not this machine's without `allow_remote`, or without a model.
    """

    deterministic = False

    def __init__(self, config: EngineConfig) -> None:
        check_url(config)
        self.window = config.window or math.ceil(1.25 * config.concurrency)
        self._config = config
        self._client: httpx.Client | None = None
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer | EngineError] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._dead: EngineError | None = None
        self._given_up = 0
        self._schemas: dict[str, Any] = {}

    def identity(self) -> dict[str, Any]:
        """The model's name and the sampling: a server does not show its weights. No address."""
        config = self._config
        return {
            "engine": "openai",
            "model": config.model,
            "temperature": config.temperature,
            "frequency_penalty": config.frequency_penalty,
            "seed": config.seed if config.temperature > 0 else 0,
            "max_new_tokens": config.max_new_tokens,
            "enable_thinking": config.enable_thinking,
        }

    def record(self) -> dict[str, Any]:
        """The server and how it is asked; never the key."""
        config = self._config
        return {
            "engine": "openai",
            "base_url": config.base_url,
            "model": config.model,
            "concurrency": config.concurrency,
            "window": self.window,
        }

    def submit(self, request: Request) -> None:
        """Hands over a request. Raises ConfigError where the key's variable is empty, EngineError where it is over."""
        if self._closed.is_set():
            raise EngineError("the engine is closed")
        if self._dead is not None:
            raise self._dead
        if self._client is None:
            self._start()
        self._requests.put(request)

    def poll(self, timeout_s: float) -> list[Answer]:
        """Answers that are there, waiting at most `timeout_s` for the first. Raises EngineError where none come."""
        ready: list[Answer] = []
        try:
            while True:
                block = not ready and timeout_s > 0 and self._client is not None
                found = self._answers.get(block=block, timeout=timeout_s if block else None)
                if isinstance(found, EngineError):
                    self._dead = found
                    break
                ready.append(found)
        except queue.Empty:
            pass
        if self._dead is not None and not ready:
            raise self._dead
        return ready

    def close(self) -> None:
        """Gives up what is in flight; safe to call twice."""
        self._closed.set()
        client, self._client = self._client, None
        if client is not None:
            for _ in range(self._config.concurrency):
                self._requests.put(None)
            client.close()

    def _start(self) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ConfigError("engine.kind openai needs httpx", hint="pip install 'backfill[openai]'") from error

        config = self._config
        headers = {"Authorization": f"Bearer {key_of(config)}"} if config.api_key_env else {}
        self._client = httpx.Client(
            base_url=config.base_url.rstrip("/") + "/",
            headers=headers,
            timeout=httpx.Timeout(config.step_timeout_s, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=config.concurrency),
            trust_env=not is_loopback(config.base_url),  # a proxy has no business between us and this machine
        )
        for number in range(config.concurrency):
            args = (self._client,)
            threading.Thread(target=self._serve, args=args, name=f"openai-{number}", daemon=True).start()

    def _serve(self, client: httpx.Client) -> None:
        while (request := self._requests.get()) is not None and not self._closed.is_set():
            try:
                self._answers.put(self._answer(client, request))
            except EngineError as error:
                self._answers.put(error)
            except Exception as error:  # a thread that dies would leave its request unanswered for ever
                self._answers.put(Answer(request.key, "", "error", error=f"{type(error).__name__}: {error}"[:500]))

    def _answer(self, client: httpx.Client, request: Request) -> Answer:
        """Asks until there is an answer or no sense in asking. Raises EngineError where every prompt would fail."""
        deadline, tries = time.monotonic() + self._config.step_timeout_s, 0
        while True:
            tries += 1
            try:
                answer = self._ask(client, request)
            except _Passing as failure:
                left_s = deadline - time.monotonic()
                pause_s = pause(tries, failure.after_s)
                if self._closed.is_set() or pause_s > left_s or (tries >= MAX_TRIES and not failure.limited):
                    return self._give_up(request, failure)
                self._closed.wait(pause_s)
            else:
                self._given_up = 0
                return answer

    def _give_up(self, request: Request, failure: _Passing) -> Answer:
        self._given_up += 1
        if not self._closed.is_set() and (not failure.reached or self._given_up >= MAX_GIVEN_UP):
            raise EngineError(
                f"the server at {self._config.base_url} does not answer: {failure}",
                hint="check engine.base_url and that the server runs; the same command resumes",
            )
        return Answer(request.key, "", "error", error=str(failure))

    def _ask(self, client: httpx.Client, request: Request) -> Answer:
        import httpx

        body = msgspec.json.encode(self._body(request))
        try:
            with client.stream(
                "POST", "chat/completions", content=body, headers={"Content-Type": "application/json"}
            ) as reply:
                data = b""
                for chunk in reply.iter_bytes():
                    data += chunk
                    if len(data) > MAX_REPLY_BYTES:
                        return Answer(request.key, "", "error", error=f"a reply of more than {MAX_REPLY_BYTES} bytes")
        except httpx.TransportError as error:
            raise _Passing(f"{type(error).__name__}: {error}", reached=False) from error
        except RuntimeError as error:  # the client was closed under us
            raise _Passing(str(error), reached=False) from error
        if reply.is_success:
            return answer_of(request.key, data)
        said = f"HTTP {reply.status_code}: {data[:300].decode('utf-8', 'replace')}"
        if reply.status_code in _AGAIN or reply.is_server_error:
            after_s = retry_after_s(reply.headers.get("Retry-After", ""))
            raise _Passing(said, reached=True, after_s=after_s, limited=reply.status_code == 429)
        if reply.status_code in _FATAL:
            raise EngineError(
                f"the server at {self._config.base_url} refuses every prompt: {said}",
                hint="check engine.base_url (it ends in /v1), engine.model, and the variable that api_key_env names",
            )
        return Answer(request.key, "", "error", error=said)

    def _body(self, request: Request) -> dict[str, Any]:
        config = self._config
        messages = [{"role": "user", "content": defuse(request.user, COMMON)}]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        body: dict[str, Any] = {
            "model": config.model,
            "messages": messages,
            "max_tokens": request.max_tokens,
            "temperature": config.temperature,
        }
        if config.frequency_penalty:
            body["frequency_penalty"] = config.frequency_penalty
        if config.temperature > 0:
            body["seed"] = config.seed
        if config.template_kwargs:
            # Templates know the switch by one of two names, and pass over the other.
            names = ("enable_thinking", "thinking")
            body["chat_template_kwargs"] = dict.fromkeys(names, config.enable_thinking)
        if request.schema:
            schema = self._schemas.setdefault(request.schema, msgspec.Raw(request.schema.encode()))
            named = {"name": _SCHEMA_NAME, "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body


def check_url(config: EngineConfig) -> None:
    """Raises ConfigError for a base_url or model that will not do; see `OpenAIEngine`."""
    if not config.model:
        raise ConfigError("engine.model names no model", hint="name it as the server does: GET /v1/models lists them")
    parts = urlsplit(config.base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"engine.base_url {config.base_url!r} is no http(s) address",
            hint="for example http://127.0.0.1:8000/v1",
        )
    if parts.username or parts.password or parts.query:
        raise ConfigError("engine.base_url may hold no user, password or query", hint="keys go by engine.api_key_env")
    if config.concurrency < 1:
        raise ConfigError(f"engine.concurrency must be at least 1, not {config.concurrency}")
    if not (config.allow_remote or is_loopback(config.base_url)):
        raise ConfigError(
            f"engine.base_url {config.base_url} is another machine, and transcripts would be sent there",
            hint="set engine.allow_remote: true if that is what you want",
        )


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine: localhost, 127.0.0.0/8 or ::1."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_of(config: EngineConfig) -> str:
    """The API key, from the variable that the configuration names. Raises ConfigError where it is empty."""
    key = os.environ.get(config.api_key_env, "")
    if not key or not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"the environment variable {config.api_key_env} (engine.api_key_env) holds no API key",
            hint="export it before you run; a key never stands in a configuration",
        )
    return key
