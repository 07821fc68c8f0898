"""Load on `backfill serve`: 200 requests a second for 60 s from a second process, and 40 new searches a second.

Requests are sent at their times, whether earlier ones are answered or not, and a latency counts from the time at which
its request was due: a server that stalls is not spared the requests it delayed. One request in ten is a search that was
never asked before; the others repeat searches, pages (rooms, timeline, the web page) and exchanges. Goals at 100,000
exchanges on two cores: no error, 99th percentile below 100 ms, memory flat.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np

from bench import synthetic
from bench.__main__ import record
from bench.harness import Result

CONNECTIONS = 64
TIMEOUT_S = 30.0


async def _request(port: int, path: str, idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> int:
    """The status of one GET over a kept connection; 0 where it failed."""
    try:
        reader, writer = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)
        fields = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
        if "content-length" in fields:
            await asyncio.wait_for(reader.readexactly(int(fields["content-length"])), TIMEOUT_S)
            if fields.get("connection") != "close" and len(idle) < CONNECTIONS:
                idle.append((reader, writer))
        else:
            writer.close()
        return int(head.split(b" ", 2)[1])
    except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError):
        return 0


async def _drive(port: int, rate: float, seconds: float, path_of: Callable[[int], str]) -> tuple[list[float], int]:
    """(latencies in ms from when each request was due, answers that were not 200)."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    latencies: list[float] = []
    failed = 0

    async def one(number: int, due: float) -> None:
        nonlocal failed
        status = await _request(port, path_of(number), idle)
        latencies.append((time.perf_counter() - due) * 1e3)
        failed += status != 200

    began = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    return latencies, failed


def run(n: int, seconds: float, rate: float, searches: float) -> Result:
    """Starts the server on the synthetic bundle of `n` and drives it; see the module."""
    queries = [query.text for query in synthetic.queries(n, 1500)]
    ids = [query.target.hex() for query in synthetic.queries(n, 200)]
    command = [sys.executable, "-m", "backfill.cli", "serve", str(synthetic.bundle(n)), "--port", "0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        port = int(json.loads(server.stdout.readline())["url"].rstrip("/").rsplit(":", 1)[1])
        fresh = iter(queries)
        known = [next(fresh) for _ in range(50)]
        chosen = random.Random(5)
        pages = ["/", "/api/rooms", "/api/timeline", "/api/palace", "/api/stats"]

        def mixed(number: int) -> str:
            if number % 10 == 0:
                return f"/api/search?q={quote(next(fresh, f'word{number}'))}"
            kind = chosen.random()
            if kind < 0.5:
                return f"/api/search?q={quote(chosen.choice(known))}"
            return chosen.choice(pages) if kind < 0.7 else f"/api/exchanges/{chosen.choice(ids)}"

        asyncio.run(_drive(port, 20, 10, mixed))
        memory = [_rss_mb(server.pid)]
        latencies, failed = asyncio.run(_drive(port, rate, seconds, mixed))
        memory.append(_rss_mb(server.pid))

        def new(number: int) -> str:
            return f"/api/search?q={quote(f'{queries[number % len(queries)]} {number}')}"

        alone, alone_failed = asyncio.run(_drive(port, searches, seconds / 3, new))
        memory.append(_rss_mb(server.pid))
    finally:
        server.terminate()
        server.wait(30)
    p50, p99 = np.percentile(latencies, 50), float(np.percentile(latencies, 99))
    alone_p99 = float(np.percentile(alone, 99))
    print(f"  {len(latencies)} requests: p50 {p50:.1f} ms, p99 {p99:.1f} ms, {failed} failed")
    print(f"  {len(alone)} new searches at {searches}/s: p99 {alone_p99:.1f} ms, {alone_failed} failed")
    print(f"  resident MB before, after, after the searches: {', '.join(f'{m:.0f}' for m in memory)}")
    return Result(
        name="load",
        value=p99,
        unit="ms",
        peers={f"{searches:.0f} new searches/s p99": alone_p99},
        limit="one search on one core",
        ratio=p99 / 100,
        goal="p99 < 100 ms, no error, memory flat",
        met=p99 < 100 and not failed and not alone_failed and memory[1] < 1.2 * memory[0] + 20,
        notes=f"{n:,} exchanges, {rate:.0f}/s for {seconds:.0f} s; p50 {p50:.1f}; failed {failed} and {alone_failed}; "
        f"MB {', '.join(f'{m:.0f}' for m in memory)}",
    )


def _rss_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), float("nan"))


def main() -> int:
    """`python -m bench.load [--n N] [--seconds S] [--rate R] [--searches Q]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--searches", type=float, default=40)
    args = parser.parse_args()
    result = run(args.n, args.seconds, args.rate, args.searches)
    record(result)
    print(result.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
