"""Fixtures of every format, broken in the ways that files break, and what must hold of whatever comes out.

`scripts/fuzz` draws from here for minutes, the tests for a moment. Everything follows from a seed, so that a finding
can be drawn again. Deliberately absent: what a broken file should yield; that is for the tests of the formats.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import zstandard

from backfill.config import ScanConfig
from backfill.ledger import check
from backfill.sources import UnitResult, read_unit
from tests.sources import test_cursor, test_more_agents, test_opencode
from tests.sources.contract import Case
from tests.sources.test_contract import CASES, stated, stored, visible

# Of one reading of a fixture of a few KB, in CPU seconds: enough for a busy machine, too little for a quadratic loop.
MAX_CPU_S = 5.0
FRAGMENTS = (
    b"null", b"[]", b"{}", b'""', b"-1", b"1e999", b"NaN", b"9" * 400, b"true", b'"\\ud800"', b'"\\u0000"', b"\0" * 9,
    b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\r\n", b"\n\n", b"\x1b[31m", b"[" * 900, b'{"a":' * 900, b'"',
    b"\\", b"}{", b"},{", b"```\n", b"#### ", b"> ", b"---\n", b"_**User**_\n", b"<details>", b"</tool-use>", b"<task>",
    b"<command-name>/x</command-name>", b"[Request interrupted by user]", b'{"$set":{"messages":null}}\n',
)  # fmt: skip
# What these say is ordered by numbers or changed by patches: their lines, moved, make no file that ever grew.
_ORDERED_INSIDE = frozenset(("gemini_cli_patches", "copilot_chat_log", "deepseek"))
# An event of these is the copy of an item nearby: moved apart, they are two until the second one comes.
_PAIRED = frozenset(("codex", "kimi"))
_SCALAR = re.compile(rb'"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?|true|false|null')


@dataclass(frozen=True, slots=True)
class Draw:
    """A broken file. `whole_lines` says that its lines are those of the fixture, in any order and number."""

    case: Case
    data: bytes
    whole_lines: bool


def packed() -> Iterator[Case]:
    """Archives of some fixtures, as cases without expectations."""
    files = {f"{n}/{case.source}": case.data for n, case in enumerate(CASES[::7])}
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with tarfile.open(fileobj=tarred, mode="w") as tape:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tape.addfile(info, io.BytesIO(data))
    for name, body in (
        ("zip", zipped.getvalue()),
        ("tar", tarred.getvalue()),
        ("tar.gz", gzip.compress(tarred.getvalue())),
        ("tar.zst", zstandard.compress(tarred.getvalue())),
    ):
        yield Case(name, "", body, (), (), appends=False, source=f"exports/old.{name}")


def databases() -> Iterator[Case]:
    """SQLite files of the formats that lie in one."""
    builders: dict[str, Callable[[Path], UnitResult]] = {
        "opencode": test_opencode.read_database,
        "cursor": test_cursor.state,
        "cursor-store": test_cursor.store,
        "goose": test_more_agents.goose,
        "hermes": test_more_agents.hermes,
        "zed": test_more_agents.zed,
    }
    for name, build in builders.items():
        with tempfile.TemporaryDirectory() as folder:
            build(Path(folder))
            (path,) = (p for p in Path(folder).iterdir() if p.is_file())
            yield Case(f"{name}-db", "", path.read_bytes(), (), (), appends=False, source=path.name)


@cache
def corpus() -> tuple[Case, ...]:
    """Every fixture of the contract suite, archives of some, and the databases."""
    return (*CASES, *packed(), *databases())


def draw(seed: int) -> Draw:
    """The broken file of a seed."""
    chance = random.Random(seed)
    case = chance.choice(corpus())
    if case.appends and case.name not in _ORDERED_INSIDE and chance.random() < 0.3:
        return Draw(case, _shuffled(case.data, chance), True)
    data = case.data
    if case.data.startswith(b"SQLite") and chance.random() < 0.6:
        for _ in range(chance.randrange(1, 4)):
            data = _revalued(data, chance)
        return Draw(case, data, False)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        data = _broken(data, chance)
    return Draw(case, data, False)


def _shuffled(data: bytes, chance: random.Random) -> bytes:
    """Lines left out, doubled and moved."""
    lines = data.splitlines(keepends=True) if data.count(b"\n") else [data]
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(lines))
        move = chance.randrange(3)
        if move == 0 and len(lines) > 1:
            del lines[at]
        elif move == 1:
            lines.insert(chance.randrange(len(lines) + 1), lines[at])
        else:
            lines.insert(chance.randrange(len(lines)), lines.pop(at))
    return b"".join(lines)


def _revalued(data: bytes, chance: random.Random) -> bytes:
    """A JSON value in a database becomes one of another type in as many bytes, which the database does not notice."""
    values = [value for value in _SCALAR.finditer(data) if len(value[0]) > 2]
    if not values:
        return data
    value = chance.choice(values)
    given = chance.choice((b"[]", b"{}", b"-1", b'""')).ljust(len(value[0]))
    return data[: value.start()] + given + data[value.end() :]


def _broken(data: bytes, chance: random.Random) -> bytes:
    """One accident: a byte, a span, a value, a piece of something else."""
    if not data:
        return chance.choice(FRAGMENTS)
    a = chance.randrange(len(data))
    b = min(len(data), a + chance.choice((1, 2, 7, 40, 300, 5000)))
    kind = chance.randrange(8)
    if kind == 0:
        return data[:a] + bytes([chance.randrange(256)]) + data[a + 1 :]
    if kind == 1:
        return data[:a] + data[b:]
    if kind == 2:
        at = chance.randrange(len(data))
        return data[:at] + data[a:b] + data[at:]
    if kind == 3:
        return data[:a]
    if kind == 4:
        return data[:a] + chance.choice(FRAGMENTS) + data[a:]
    if kind == 5:
        return data[:a] + chance.randbytes(b - a) + data[b:]
    if kind == 6:
        other = chance.choice(corpus()).data
        return data[:a] + other[chance.randrange(len(other)) :]
    values = list(_SCALAR.finditer(data))
    if not values:
        return data[a:]
    value = chance.choice(values)
    given = chance.choice((*FRAGMENTS[:16], chance.choice(values)[0]))
    return data[: value.start()] + given + data[value.end() :]


def examine(drawn: Draw, folder: Path) -> list[str]:
    """What does not hold of the reading of a broken file; empty if all is well.

    It is read with the reader that its content asks for, and with its own. Where whole lines were moved, it must also
    show the same whether it is read at once or as it grows, and each exchange must hold the texts of its records.
    """
    problems = _read(drawn, folder, "auto")[1]
    if drawn.case.agent:
        whole, more = _read(drawn, folder, drawn.case.agent)
        problems += more
        if drawn.whole_lines and whole is not None:
            problems += _growth(drawn, folder, whole) if drawn.case.name not in _PAIRED else []
            problems += _texts(drawn, whole)
    return problems


def _read(drawn: Draw, folder: Path, agent: str) -> tuple[UnitResult | None, list[str]]:
    path = folder / drawn.case.source
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn.data)
    config = ScanConfig(agent=agent)
    began = time.process_time()
    try:
        result = read_unit(path, drawn.case.source, len(drawn.data), config, split_tokens=60)
    except Exception as error:
        return None, [f"{agent}: {type(error).__name__}: {error}"]
    spent = time.process_time() - began
    problems = [f"{agent}: {p}" for p in check(result.ledger, {drawn.case.source: len(drawn.data)}, _ids(result))]
    if spent > MAX_CPU_S:
        problems.append(f"{agent}: {spent:.1f} s for {len(drawn.data)} bytes")
    return result, problems + [f"{agent}: {p}" for p in _rows(result)]


def _ids(result: UnitResult) -> set[bytes]:
    return {row.exchange_id for row in result.exchanges}


def _rows(result: UnitResult) -> Iterator[str]:
    """What no row may be."""
    for row in result.exchanges:
        texts = [row.user_text, row.agent_text, row.thinking]
        texts += [text for tool in row.tools for text in (tool.name, tool.input, tool.head, tool.tail, *tool.paths)]
        for text in texts:
            try:
                text.encode()
            except UnicodeEncodeError:
                yield f"text that is not Unicode: {text[:60]!r}"
    ids = _ids(result)
    for place in result.occurrences:
        if place.exchange_id not in ids:
            yield f"an occurrence of {place.exchange_id.hex()}, which does not exist"
        if not 0 <= place.byte_start <= place.byte_end:
            yield f"an occurrence at {place.byte_start}-{place.byte_end}"
        if place.started_at is not None and place.ended_at is not None and place.started_at > place.ended_at:
            yield "an exchange that ends before it begins"


def _texts(drawn: Draw, whole: UnitResult) -> Iterator[str]:
    """Marks of records that became part of an exchange which does not hold them."""
    rows = {row.exchange_id: stored(row) for row in whole.exchanges}
    for mark in drawn.case.said:
        if drawn.data.count(mark.encode()) != 1:
            continue
        at = drawn.data.index(mark.encode())
        row = next(row for row in whole.ledger if row.byte_start <= at < row.byte_end)
        if row.state == "part_of" and row.ref is not None and mark not in rows[row.ref]:
            yield f"{mark!r} is not in the exchange that its bytes are part of"


def _growth(drawn: Draw, folder: Path, whole: UnitResult) -> list[str]:
    chance = random.Random(len(drawn.data))
    shown = visible([whole])
    for _ in range(3):
        size = chance.randrange(len(drawn.data)) if drawn.data else 0
        part, problems = _read(Draw(drawn.case, drawn.data[:size], False), folder, drawn.case.agent)
        if part is None:
            return problems
        if visible([part, whole]) != shown:
            return [f"{drawn.case.agent}: cut at {size} it shows {stated(part)} and then {stated(whole)}"]
    return []
