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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from bench import synthetic
from bench.__main__ import record
from bench.harness import Result

CONNECTIONS = 64
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Driven:
    """What came of many requests: ms from when each was due, by kind of request, and how they failed."""

    latencies: dict[str, list[float]]
    failures: Counter[int | str]

    @property
    def total(self) -> int:
        return sum(map(len, self.latencies.values()))

    def percentile(self, share: float) -> float:
        """Of all requests."""
        return float(np.percentile([ms for found in self.latencies.values() for ms in found], share))

    def said(self) -> str:
        """The 99th percentile of each kind, and the failures by status or error."""
        kinds = ", ".join(f"{kind} p99 {np.percentile(ms, 99):.1f}" for kind, ms in sorted(self.latencies.items()))
        return f"{kinds}; failed {dict(self.failures) or 'none'}"


async def _request(port: int, path: str, idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> int | str:
    """The status of one GET over a kept connection; what went wrong where there was none."""
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
    except (OSError, ValueError, asyncio.IncompleteReadError, TimeoutError) as error:
        return type(error).__name__


async def _drive(port: int, rate: float, seconds: float, request_of: Callable[[int], tuple[str, str]]) -> Driven:
    """Sends each request at its time and waits for all answers."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    driven = Driven({}, Counter())

    async def one(number: int, due: float) -> None:
        kind, path = request_of(number)
        status = await _request(port, path, idle)
        driven.latencies.setdefault(kind, []).append((time.perf_counter() - due) * 1e3)
        if status != 200:
            driven.failures[status] += 1

    began = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(number, due)))
    await asyncio.gather(*tasks)
    return driven


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

        def mixed(number: int) -> tuple[str, str]:
            if number % 10 == 0:
                return "new search", f"/api/search?q={quote(next(fresh, f'word{number}'))}"
            kind = chosen.random()
            if kind < 0.5:
                return "repeat", f"/api/search?q={quote(chosen.choice(known))}"
            return (
                ("page", chosen.choice(pages)) if kind < 0.7 else ("exchange", f"/api/exchanges/{chosen.choice(ids)}")
            )

        asyncio.run(_drive(port, 20, 10, mixed))
        memory = [_rss_mb(server.pid)]
        mix = asyncio.run(_drive(port, rate, seconds, mixed))
        memory.append(_rss_mb(server.pid))

        def new(number: int) -> tuple[str, str]:
            return "new search", f"/api/search?q={quote(f'{queries[number % len(queries)]} {number}')}"

        alone = asyncio.run(_drive(port, searches, seconds / 3, new))
        memory.append(_rss_mb(server.pid))
    finally:
        server.terminate()
        server.wait(30)
    p50, p99, alone_p99 = mix.percentile(50), mix.percentile(99), alone.percentile(99)
    print(f"  {mix.total} requests at {rate}/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms; {mix.said()}")
    print(f"  {alone.total} new searches at {searches}/s: p50 {alone.percentile(50):.1f}, p99 {alone_p99:.1f} ms; "
          f"{alone.said()}")  # fmt: skip
    print(f"  resident MB before, after, after the searches: {', '.join(f'{m:.0f}' for m in memory)}")
    return Result(
        name="load",
        value=p99,
        unit="ms",
        peers={f"{searches:.0f} new searches/s p99": alone_p99},
        limit="one search on one core",
        ratio=p99 / 100,
        goal="p99 < 100 ms, no error, memory flat",
        met=p99 < 100 and not mix.failures and not alone.failures and memory[1] < 1.2 * memory[0] + 20,
        notes=f"{n:,} exchanges, {rate:.0f}/s for {seconds:.0f} s; p50 {p50:.1f}; {mix.said()}; "
        f"searches alone: {alone.said()}; MB {', '.join(f'{m:.0f}' for m in memory)}",
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
