"""Load on `backfill serve`: 200 requests a second for 60 s from a second process, and 40 new searches a second.

Requests are sent at their times, whether earlier ones are answered or not, and a latency counts from the time at which
its request was due: a server that stalls is not spared the requests it delayed. One request in ten is a search that was
never asked before; the others repeat searches, pages (rooms, timeline, the web page) and exchanges. Goals at 100,000
exchanges on two cores: no error, 99th percentile below 100 ms, memory flat.

Memory is that of the server and its search processes together: what is private to each, and of mapped files each
process's share (PSS), so that a page which two processes map counts once. It is flat where neither the second half of
the mix nor the new searches after it add 5% to what there was half way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    def joined(self, other: Driven) -> Driven:
        """The requests of both."""
        kinds = self.latencies.keys() | other.latencies.keys()
        both = {kind: [*self.latencies.get(kind, ()), *other.latencies.get(kind, ())] for kind in kinds}
        return Driven(both, self.failures + other.failures)

    def percentile(self, share: float) -> float:
        """Of all requests."""
        return float(np.percentile([ms for found in self.latencies.values() for ms in found], share))

    def said(self) -> str:
        """Each kind's share, median and 99th percentile, and the failures by status or error."""
        kinds = ", ".join(
            f"{kind} {len(ms)} ({np.percentile(ms, 50):.1f}, {np.percentile(ms, 99):.1f})"
            for kind, ms in sorted(self.latencies.items())
        )
        return f"{kinds}; failed {dict(self.failures) or 'none'}"


@dataclass(frozen=True)
class Usage:
    """Of the server and its search processes: private and mapped MB, the processes, their CPU seconds, and ours."""

    private_mb: float
    mapped_mb: float
    rss_mb: tuple[float, ...]
    server_s: float
    searching_s: float
    ours_s: float

    @property
    def total_mb(self) -> float:
        return self.private_mb + self.mapped_mb

    def said(self) -> str:
        each = " + ".join(f"{rss:.0f}" for rss in self.rss_mb)
        return f"{self.total_mb:.0f} MB ({self.private_mb:.0f} private, {self.mapped_mb:.0f} mapped; resident {each})"


def usage(server: int) -> Usage:
    """Read from /proc, so Linux alone."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    rollups = [_rollup(pid) for pid in (str(server), *children)]
    private = sum(one["Anonymous"] for one in rollups)
    return Usage(
        private_mb=private,
        mapped_mb=sum(one["Pss"] for one in rollups) - private,
        rss_mb=tuple(one["Rss"] for one in rollups),
        server_s=_cpu_s(str(server)),
        searching_s=sum(map(_cpu_s, children)),
        ours_s=time.process_time(),
    )


def _rollup(pid: str) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}


def _cpu_s(pid: str) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


@contextmanager
def _serving(n: int, processes: int | None) -> Iterator[tuple[int, int]]:
    """(process id, port) of a server over the synthetic bundle of `n`."""
    command = [sys.executable, "-m", "backfill.cli", "serve", str(synthetic.bundle(n)), "--port", "0", "--json"]
    command += [] if processes is None else ["--search-processes", str(processes)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        yield server.pid, int(json.loads(server.stdout.readline())["port"])
    finally:
        server.terminate()
        server.wait(30)


def run(n: int, seconds: float, rate: float, searches: float, processes: int | None = None) -> Result:
    """Starts the server on the synthetic bundle of `n` and drives it; see the module."""
    queries = [query.text for query in synthetic.queries(n, 1500)]
    ids = [query.target.hex() for query in synthetic.queries(n, 400)]
    known_ids, others = ids[:200], ids[200:]
    fresh = iter(queries)
    known = [next(fresh) for _ in range(50)]
    chosen = random.Random(5)
    pages = ["/", "/api/rooms", "/api/timeline", "/api/palace", "/api/stats"]

    def new(number: int) -> tuple[str, str]:
        return "new search", f"/api/search?q={quote(f'{queries[number % len(queries)]} {number}')}"

    def mixed(number: int) -> tuple[str, str]:
        if number % 10 == 0:
            return "new search", f"/api/search?q={quote(next(fresh, f'word{number}'))}"
        kind = chosen.random()
        if kind < 0.5:
            return "repeat", f"/api/search?q={quote(chosen.choice(known))}"
        return (
            ("page", chosen.choice(pages)) if kind < 0.7 else ("exchange", f"/api/exchanges/{chosen.choice(known_ids)}")
        )

    with _serving(n, processes) as (server, port):
        # What a server that has run for a while has: its indexes mapped, and answers to searches that come again.
        asyncio.run(_drive(port, 20, 10, new))
        asyncio.run(_drive(port, 10, len(known) / 10, lambda at: ("repeat", f"/api/search?q={quote(known[at])}")))
        asyncio.run(_drive(port, 20, len(others) / 20, lambda at: ("exchange", f"/api/exchanges/{others[at]}")))
        used = [usage(server)]
        halves = []
        for _ in range(2):
            halves.append(asyncio.run(_drive(port, rate, seconds / 2, mixed)))
            used.append(usage(server))
        alone = asyncio.run(_drive(port, searches, seconds / 3, lambda number: new(number + 10_000)))
        used.append(usage(server))
    mix = halves[0].joined(halves[1])
    p50, p99, alone_p99 = mix.percentile(50), mix.percentile(99), alone.percentile(99)
    flat = max(used[2].total_mb, used[3].total_mb) < 1.05 * used[1].total_mb
    searching = "in the server" if len(used[0].rss_mb) == 1 else f"in {len(used[0].rss_mb) - 1} processes"
    print(f"  {n:,} exchanges, searches {searching}; ms from when a request was due to its last byte (median, p99)")
    print(f"  {mix.total:,} requests at {rate:g}/s: {p50:.1f}, {p99:.1f}: {mix.said()}")
    print(f"  {alone.total:,} new searches at {searches:g}/s: {alone.said()}")
    for when, one in zip(("once warm", "half way", "after it", "after the searches"), used, strict=True):
        print(f"  {when}: {one.said()}")
    cores = _cores(used[0], used[2], seconds), _cores(used[2], used[3], seconds / 3)
    for what, (server_c, search_c, ours_c) in zip(("mix", "searches"), cores, strict=True):
        print(f"  cores busy, {what}: server {server_c:.2f}, search processes {search_c:.2f}, this load {ours_c:.2f}")
    return Result(
        name="load",
        value=p99,
        unit="ms",
        peers={f"{searches:.0f} new searches/s p99": alone_p99},
        limit="CPU time of one new search",
        ratio=p99 / 100,
        goal="p99 < 100 ms, no error, memory flat",
        met=p99 < 100 and not mix.failures and not alone.failures and flat,
        notes=f"{n:,} exchanges, {rate:.0f}/s for {seconds:.0f} s, searches {searching}; p50 {p50:.1f}; {mix.said()}; "
        f"searches alone: {alone.said()}; MB {', '.join(f'{one.total_mb:.0f}' for one in used)}",
    )


def _cores(before: Usage, after: Usage, seconds: float) -> tuple[float, float, float]:
    names = ("server_s", "searching_s", "ours_s")
    server, searching, ours = ((getattr(after, name) - getattr(before, name)) / seconds for name in names)
    return server, searching, ours


def main() -> int:
    """`python -m bench.load [--n N] [--seconds S] [--rate R] [--searches Q] [--search-processes P]`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--searches", type=float, default=40)
    parser.add_argument("--search-processes", type=int, metavar="P", help="as `backfill serve` takes it")
    parser.add_argument("--dry", action="store_true", help="only print: results.csv stays as it is")
    args = parser.parse_args()
    result = run(args.n, args.seconds, args.rate, args.searches, args.search_processes)
    if not args.dry:
        record(result)
    print(result.line())
    return 0


if __name__ == "__main__":
    sys.exit(main())
