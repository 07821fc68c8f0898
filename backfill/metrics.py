"""A run's state as Prometheus text, served on 127.0.0.1 while the run works (`launcher.metrics_port`).

Every scrape reads the run's files, as `status` does, so the figures are those of all workers, wherever they run;
answers are kept for `FRESH_S`. Deliberately absent: a client library, for the format is lines of text; and addresses
beyond this machine, which a proxy or an agent can give it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from backfill.errors import BackfillError, UsageError

FRESH_S = 5.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def prometheus_text(status: dict[str, Any]) -> str:
    """The text format 0.0.4 of a `status --json` record."""
    lines: list[str] = []

    def metric(name: str, kind: str, about: str, rows: list[tuple[dict[str, str], float]]) -> None:
        lines.append(f"# HELP backfill_{name} {about}")
        lines.append(f"# TYPE backfill_{name} {kind}")
        for labels, value in rows:
            inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            lines.append(f"backfill_{name}{{{inside}}} {value:g}" if inside else f"backfill_{name} {value:g}")

    stages = status["stages"].items()
    metric("shards_done", "gauge", "Shards published.", [({"stage": n}, s["done"]) for n, s in stages])
    metric("shards", "gauge", "Shards planned.", [({"stage": n}, s["total"]) for n, s in stages])
    for name, about in (("rate", "Exchanges and windows a second."), ("token_rate", "Tokens a second.")):
        rows = [({"over": over}, value) for over, value in status.get(name, {}).items()]
        metric(f"{name}_per_second", "gauge", about, rows)
    if status["eta_s"] is not None:
        metric("eta_seconds", "gauge", "Time left at the overall rate.", [({}, status["eta_s"])])
    refused = [({"reason": reason}, n) for reason, n in status["failures"].items()]
    metric("refused_answers_total", "counter", "Refused answers by reason.", refused)
    silent = [
        ({"worker": w["id"], "host": w["host"] or "", "state": w["state"]}, w["silent_s"]) for w in status["workers"]
    ]
    metric("worker_silent_seconds", "gauge", "Time since a worker's last event line.", silent)
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@contextmanager
def metrics_served(run: Path, port: int) -> Iterator[int]:
    """Serves http://127.0.0.1:port/metrics while the block runs; yields the port (0 asks for a free one).

    Raises UsageError where the port is taken.
    """
    from backfill.status import Status

    status = Status(run)
    kept: dict[str, Any] = {"at": -FRESH_S, "text": ""}
    lock = threading.Lock()

    def current() -> str:
        with lock:
            if time.monotonic() - kept["at"] >= FRESH_S:
                kept.update(text=prometheus_text(status.record()), at=time.monotonic())
            return str(kept["text"])

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404)
                return
            try:
                body, code = current().encode(), 200
            except (BackfillError, OSError) as error:  # before the plan stands there is nothing to tell
                body, code = f"# {type(error).__name__}\n".encode(), 503
            self.send_response(code)
            self.send_header("content-type", CONTENT_TYPE)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not worth a line each."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Answers)
    except OSError as error:
        raise UsageError(f"metrics_port {port}: {error.strerror}", hint="choose another port, or 0 for none") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
