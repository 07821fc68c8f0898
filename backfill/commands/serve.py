"""A web page and a JSON API over a bundle, on this machine alone: search, palace, timeline, claims. Ctrl-C ends it."""

from __future__ import annotations

import argparse
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from backfill.commands.printing import print_json
from backfill.errors import UsageError

if TYPE_CHECKING:
    import uvicorn

HOST = "127.0.0.1"
DEFAULT_PORT = 8790
# A second thread saves a short query a few milliseconds where a core is idle, and takes them from others where none is.
ENCODER_THREADS = 1
# Connections and requests at one time; beyond that a request gets 503 instead of a place in an endless queue.
MAX_OPEN = 512
# A connection that is closed after five idle seconds, as uvicorn does by itself, may meet the next request of a client
# that keeps its connections, and the client sees a failure.
KEEP_ALIVE_S = 75
# Of the interpreter's lock: a search that runs in a thread lets the event loop in after a millisecond instead of five.
SWITCH_S = 0.001
MAX_PROCESSES = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill serve`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"0: any free one ({DEFAULT_PORT})")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")
    parser.add_argument(
        "--search-processes", type=int, metavar="N",
        help="processes that search, beside the server's own (half of the cores; 0: searches run in the server)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one line of JSON on stdout, once the server answers")


def run(args: argparse.Namespace) -> int:
    """Serves until it is told to stop; Ctrl-C and TERM end it with 0."""
    try:
        import uvicorn

        from backfill.web.app import make_app
        from backfill.web.follow import Follower
        from backfill.web.pools import serving_pools, warm_state
        from backfill.web.processes import default_processes
    except ModuleNotFoundError as error:
        raise UsageError(f"the web page needs the package {error.name}", hint="pip install '.[query,web]'") from error
    if not 0 <= args.port <= 65_535:
        raise UsageError(f"a port is 0 to 65535, not {args.port}")
    n_processes = default_processes() if args.search_processes is None else args.search_processes
    if not 0 <= n_processes <= MAX_PROCESSES:
        raise UsageError(f"search processes are 0 to {MAX_PROCESSES}, not {n_processes}")
    sys.setswitchinterval(SWITCH_S)
    with serving_pools(args.bundle, n_processes) as pools:
        follower = Follower(
            args.bundle, pools.pages, trust_encoder=args.trust_encoder, encoder_threads=ENCODER_THREADS,
            warm=partial(warm_state, pools),
        )  # fmt: skip
        listener = _listen(args.port)
        port = int(listener.getsockname()[1])
        pools.pages.submit(warm_state, pools, follower.current())
        config = uvicorn.Config(
            make_app(follower, pools, port=port), lifespan="off", ws="none", access_log=False, log_level="warning",
            server_header=False, proxy_headers=False, timeout_graceful_shutdown=2, limit_concurrency=MAX_OPEN,
            timeout_keep_alive=KEEP_ALIVE_S,
        )  # fmt: skip
        server = uvicorn.Server(config)
        with _stopped_by_signals(server):
            threading.Thread(target=_announce, args=(server, args, port), daemon=True).start()
            server.run(sockets=[listener])
    return 0


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        hint = "--port 0 takes any free one"
        raise UsageError(f"port {port} cannot be opened: {error.strerror}", hint=hint) from error
    return listener


def _announce(server: uvicorn.Server, args: argparse.Namespace, port: int) -> None:
    """Says where the page is, once it is there."""
    while not server.started:
        if server.should_exit:
            return
        threading.Event().wait(0.02)
    url = f"http://{HOST}:{port}/"
    if args.json:
        print_json({"url": url, "port": port, "bundle": str(args.bundle), "ok": True})
    else:
        print(f"{url}  (Ctrl-C ends it)")
    sys.stdout.flush()
    if args.open:
        import webbrowser

        webbrowser.open(url)


@contextmanager
def _stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Ctrl-C and TERM end the server in order; a second one does not wait for what is in flight."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    # uvicorn would raise the signal again at its end, and with it the exit code of a failure.
    server.capture_signals = _nothing  # type: ignore[method-assign]
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
