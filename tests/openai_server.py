"""A chat completion server of ours for tests: scripted answers, and misbehaviour on demand.

Words in the user's message: REFUSE is answered 400, BUSY 429 once and then well, BROKEN 500 always, FLAKY 503 twice and
then well, PROSE with what is no JSON, HUGE with more than a client should read, HANG after two seconds, CUT by closing
the connection once. `FORBID` in the model's name is answered 401.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from backfill.engines.scripted import script


class Server(ThreadingHTTPServer):
    """Listens on this machine only; keeps what it was sent."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.seen: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        user = body["messages"][-1]["content"]
        server = self.server
        with server.lock:
            server.bodies.append(body)
            server.keys.append(self.headers.get("Authorization"))
            server.seen[user] += 1
            times = server.seen[user]
            server.at_once += 1
            server.most_at_once = max(server.at_once, server.most_at_once)
        try:
            self._answer(body, user, times)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with server.lock:
                server.at_once -= 1

    def _answer(self, body: dict[str, Any], user: str, times: int) -> None:
        if self.path != "/v1/chat/completions":
            self._send(404, {"error": "no such path"})
        elif "FORBID" in body["model"]:
            self._send(401, {"error": "who are you?"})
        elif "REFUSE" in user:
            self._send(400, {"error": "the prompt is too long"})
        elif "BROKEN" in user:
            self._send(500, {"error": "out of order"})
        elif "FLAKY" in user and times < 3:
            self._send(503, {"error": "loading"})
        elif "BUSY" in user and times < 2:
            self._send(429, {"error": "slow down"}, {"Retry-After": "0.1"})
        elif "CUT" in user and times < 2:
            self.close_connection = True
        elif "PROSE" in user:
            self._send(200, "I would rather not.")
        elif "HUGE" in user:
            self._send(200, "x" * 4096)
        else:
            time.sleep(2 if "HANG" in user else 0.01)
            text = script(user, random.Random(user))
            usage = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4}}
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            self._send(200, {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})

    def _send(self, status: int, reply: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def running() -> Iterator[Server]:
    """A server while the block runs."""
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
