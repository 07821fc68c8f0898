"""Asks the application in-process, the way a browser that opened the printed address does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from starlette.testclient import TestClient

from backfill.web.app import make_app
from backfill.web.follow import Follower
from backfill.web.pools import Pools, warm_state
from backfill.web.processes import SearchProcesses

PORT = 8790
BASE = f"http://127.0.0.1:{PORT}"


@contextmanager
def client_of(
    bundle: Path, *, trust_encoder: bool = True, cache_bytes: int = 1 << 22, processes: SearchProcesses | None = None
) -> Iterator[TestClient]:
    """A client of a server over the bundle; errors come back as answers, as they would over a socket."""
    with ThreadPoolExecutor(4) as executor:
        pools = Pools(executor, executor, executor, processes)
        warm = None if processes is None else partial(warm_state, pools)
        follower = Follower(bundle, executor, trust_encoder=trust_encoder, warm=warm)
        app = make_app(follower, pools, port=PORT, cache_bytes=cache_bytes)
        with TestClient(app, base_url=BASE, raise_server_exceptions=False) as client:
            yield client


@contextmanager
def searches_meanwhile(client: TestClient) -> Iterator[list[int]]:
    """Asks one new search after another while the block runs; gives their statuses, whole once it has ended."""
    statuses: list[int] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            statuses.append(client.get(f"/api/search?q=retry {len(statuses)}").status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield statuses
    finally:
        stop.set()
        asking.join()
