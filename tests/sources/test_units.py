"""Reading units: detection by content, bad bytes, what grown files yield, the ledger against the bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill.config import ScanConfig
from backfill.errors import ConfigError
from backfill.ids import row_bytes
from backfill.ledger import check
from backfill.sources import UnitResult, detect, jsonl, read_unit
from backfill.types import Exchange, Occurrence
from tests.claude_lines import SESSION, ClaudeFile, call, read, texts, thought

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "transcripts"
QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))


def states(result: UnitResult) -> list[tuple[int, str, str]]:
    return [(row.n_records, row.state, row.reason) for row in result.ledger]


def balanced(result: UnitResult, size: int, source: str = "proj/s.jsonl") -> bool:
    assert check(result.ledger, {source: size}, {e.exchange_id for e in result.exchanges}) == []
    return True


def simple() -> ClaudeFile:
    f = ClaudeFile()
    f.user("Where is the lock?")
    f.agent("In db.py.")
    return f


# Detection


def test_detection_is_by_content_not_by_name() -> None:
    data = simple().data()
    openai = b'{"role": "user", "content": "hi"}\n'
    assert [r and r.name for r in (detect(data, "x.txt"), detect(openai, "claude/projects/x.jsonl"))] == [
        "claude_code",
        "openai_messages",
    ]


@pytest.mark.parametrize(
    "head",
    [
        b"# Notes\n\n- a: b\n",
        b'[{"type":"message","user":"U1","text":"hello"}]',
        b'{"ts":"2026","event":"START"}\n',
        b"\x00\x01\x02\x03",
        b"[1, 2, 3]",
    ],
)
def test_other_formats_are_left_to_their_readers(tmp_path: Path, head: bytes) -> None:
    assert detect(head, "x.jsonl") is None
    result = read(tmp_path, head)
    assert (result.agent, states(result)) == ("", [(0, "skipped", "not_transcript")])
    assert balanced(result, len(head))


def test_prompt_indexes_are_no_transcripts(tmp_path: Path) -> None:
    claude = b'{"display":"hi","pastedContents":{},"timestamp":1,"project":"/x","sessionId":"s"}\n'
    codex = b'{"session_id":"s","ts":1,"text":"hi"}\n'
    assert [states(read(tmp_path, data)) for data in (claude, codex)] == [[(0, "skipped", "index")]] * 2


def test_an_empty_and_a_blank_file(tmp_path: Path) -> None:
    for data in (b"", b"\n \n"):
        result = read(tmp_path, data)
        assert [(r.byte_start, r.byte_end, r.n_records, r.state, r.reason) for r in result.ledger] == [
            (0, len(data), 0, "skipped", "empty")
        ]


def test_a_forced_reader_and_an_unknown_one(tmp_path: Path) -> None:
    data = b'{"type":"odd"}\n' + simple().data()
    assert read(tmp_path, data, agent="claude_code").agent == "claude_code"
    with pytest.raises(ConfigError, match="nope"):
        read(tmp_path, data, agent="nope")


def test_a_first_line_longer_than_the_head_is_recognised(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("x" * 400_000)
    f.agent("Long.")
    assert texts(read(tmp_path, f.data(), split_tokens=10**6)) == [("x" * 400_000, "Long.")]


# Bad bytes


def test_a_half_written_last_line_is_pending_and_read_when_it_is_whole(tmp_path: Path) -> None:
    f = simple()
    data = f.data()
    torn = read(tmp_path, data[:-30])
    assert states(torn) == [(1, "part_of", ""), (1, "pending", "")]
    assert balanced(torn, len(data) - 30)
    assert texts(read(tmp_path, data[:-1])) == texts(read(tmp_path, data)) == [("Where is the lock?", "In db.py.")]


def test_only_the_given_bytes_are_read(tmp_path: Path) -> None:
    f = simple()
    path = tmp_path / "grows.jsonl"
    path.write_bytes(f.data() + b"later bytes")
    result = read_unit(path, "grows.jsonl", len(f.lines[0]), ScanConfig())
    assert texts(result) == [("Where is the lock?", "")]
    assert balanced(result, len(f.lines[0]), "grows.jsonl")


def test_a_file_that_shrank_is_accounted_for(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(simple().data())
    size = len(simple().data())
    result = read_unit(path, "s.jsonl", size + 100, ScanConfig())
    assert [(r.byte_start, r.byte_end, r.state, r.reason) for r in result.ledger[1:]] == [
        (size, size + 100, "quarantined", "shrunk")
    ]
    assert check(result.ledger, {"s.jsonl": size + 100}) == []


def test_glued_and_torn_lines_are_salvaged(tmp_path: Path) -> None:
    f = simple()
    f.agent("B.")
    f.agent("C.")
    one, two, three, four = (line.rstrip(b"\n") for line in f.lines)
    torn = b'{"parentUuid":"234065dd-47'
    data = one + two + b"\n" + torn + three + b"\n" + four + b'-mixing-swan"}\n'
    result = read(tmp_path, data)
    assert texts(result) == [("Where is the lock?", "In db.py.\n\nB.\n\nC.")]
    assert states(result) == [
        (2, "part_of", ""),
        (1, "quarantined", "not_json"),
        (2, "part_of", ""),
        (1, "quarantined", "not_json"),
    ]
    begin = len(one) + len(two)
    assert [(r.byte_start, r.byte_end) for r in result.ledger if r.state == "quarantined"] == [
        (begin, begin + 1 + len(torn)),
        (len(data) - 15, len(data)),
    ]


def test_an_inner_object_of_a_torn_line_is_no_record(tmp_path: Path) -> None:
    f = simple()
    data = f.data() + f.lines[0][:-5] + b"\n"
    assert states(read(tmp_path, data)) == [(2, "part_of", ""), (1, "quarantined", "not_json")]


def test_broken_text_is_read_and_counted(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("caf\u00e9 QQ")
    f.agent("lone SS here")
    f.user("a\u2028b\u0085c")
    data = f.data().replace(b"QQ", b"\xff\xfe").replace(b"SS", b"\\ud83d").replace(b"\n", b"\r\n")
    result = read(tmp_path, b"\xef\xbb\xbf" + data)
    assert texts(result) == [("café \ufffd\ufffd", "lone \ufffd here"), ("a\u2028b\u0085c", "")]
    assert result.decode_errors == 2
    assert balanced(result, len(data) + 3)


def test_odd_shapes_are_read_or_skipped_never_fatal(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.raw({"type": "user", "message": "a string", "sessionId": SESSION, "uuid": "s1", "parentUuid": None})
    f.raw({"type": "assistant", "message": {"content": None}, "sessionId": SESSION, "uuid": "s2"})
    f.raw({"type": "assistant", "message": {"content": ["text", {"type": "text", "text": 5}]}, "sessionId": SESSION})
    f.raw({"type": "user", "timestamp": 12, "cwd": [], "message": {"content": "next", "x": float("nan")}})
    for value in (12, None, "text", [], {}, {"type": 5}):
        f.raw(value)
    f.lines.append(b"\0" * 100 + b"\n")
    f.lines.append(b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}\n")
    result = read(tmp_path, f.data())
    assert texts(result) == [("a string", "text"), ("next", "")]
    assert [(r.state, r.reason) for r in result.ledger][-1] == ("quarantined", "too_deep")
    assert balanced(result, len(f.data()))


def test_deeply_nested_arguments_do_not_stop_the_reading(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("Go")
    deep = json.loads('{"token":' * 400 + '"x"' + "}" * 400)
    f.agent(call("Odd", "t1", value=deep))
    assert read(tmp_path, f.data(), privacy="secrets").exchanges[0].tools[0].name == "Odd"


def test_a_line_over_the_limit_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 3 << 20)
    f = simple()
    big = ClaudeFile()
    big.user("y" * (4 << 20))
    data = f.data() + big.data() + f.lines[1].replace(b'"u2"', b'"u9"').replace(b"msg_2", b"msg_9")
    result = read(tmp_path, data)
    assert states(result) == [(2, "part_of", ""), (1, "quarantined", "line_too_long"), (1, "part_of", "")]
    assert balanced(result, len(data))


def test_a_20_mb_line_is_read(tmp_path: Path) -> None:
    f = ClaudeFile()
    f.user("Go")
    f.agent(call("Bash", "t1", command="dump"))
    f.result("t1", "z" * (20 << 20))
    (tool,) = read(tmp_path, f.data(), privacy="secrets").exchanges[0].tools
    assert len(tool.head) + len(tool.tail) == 4095
    assert tool.cut_bytes == (20 << 20) - 4095


@QUIET
@given(st.binary(max_size=300), st.integers(0, 3))
def test_random_bytes_never_crash_and_always_tile(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int
) -> None:
    f = simple()
    f.user("More")
    lines = [*f.lines[:at], junk, *f.lines[at:]]
    data = b"".join(lines)
    path = tmp_path_factory.getbasetemp() / "random"
    for agent in ("auto", "claude_code", "openai_messages"):
        assert balanced(read(path.parent, data, agent=agent), len(data))


# Growth


def eventful() -> ClaudeFile:
    """Every rule in one file."""
    f = ClaudeFile()
    f.raw({"type": "summary", "summary": "Carts", "leafUuid": "u2"})
    f.queue("enqueue", "typed before anything")
    f.queue("dequeue")
    f.user("typed before anything")
    f.agent(thought("hm"), "A1", call("Bash", "t1", command="ls"), mid="m1")
    f.queue("enqueue", "steer left")
    f.queue("enqueue", "becomes a prompt")
    f.result("t1", "files")
    f.queue("remove")
    f.agent("A2 " * 60, mid="m2")
    f.agent("A3 " * 60, mid="m3")
    f.agent("A4", mid="m2")
    f.queue("dequeue")
    f.user("becomes a prompt")
    head = f.agent("B1")
    f.user("<command-name>/review</command-name><command-args>x</command-args>")
    f.user("skill body", isMeta=True)
    f.agent("C1")
    f.user("<command-name>/model</command-name>")
    f.user("D", parent=head)
    f.user("[Request interrupted by user]")
    f.user("D again")
    f.agent("D1", call("Task", "t2", prompt="find"))
    side = f.user("find", isSidechain=True, parent=None)
    f.agent("found", isSidechain=True, parent=side)
    f.raw({"type": "custom-title", "customTitle": "Renamed", "sessionId": SESSION})
    f.queue("enqueue", "one")
    f.queue("enqueue", "two")
    f.queue("remove")
    f.add("attachment", attachment={"type": "queued_command", "prompt": "two"})
    f.result("t2", "late")
    f.lines.append(f.lines[3])
    f.add("system", subtype="compact_boundary", parent=None, logicalParentUuid=head)
    f.user("This session is being continued from a previous conversation", isCompactSummary=True)
    f.agent("D2")
    f.queue("enqueue", "E")
    f.queue("enqueue", "F")
    f.queue("dequeue")
    f.queue("dequeue")
    f.user("E")
    f.user("F")
    f.agent("E1")
    f.user([{"type": "image", "source": {}}])
    f.agent("G1 " * 100)
    f.queue("enqueue", "never resolved")
    f.agent("G2")
    return f


def visible(rows: list[UnitResult]) -> dict[tuple[str, str, int], tuple[Exchange, Occurrence]]:
    """The visibility rule: per key the greatest (scan_version, n_records, exchange_id, row bytes)."""
    exchanges = {e.exchange_id: e for r in rows for e in r.exchanges}
    best: dict[tuple[str, str, int], Occurrence] = {}
    for result in rows:
        for o in result.occurrences:
            key = (o.session_id, o.anchor, o.part)
            rank = (o.scan_version, o.n_records, o.exchange_id, row_bytes(o))
            held = best.get(key)
            if held is None or rank > (held.scan_version, held.n_records, held.exchange_id, row_bytes(held)):
                best[key] = o
    return {key: (exchanges[o.exchange_id], o) for key, o in best.items()}


def test_every_prefix_of_a_file_leaves_what_the_whole_file_shows(tmp_path: Path) -> None:
    f = eventful()
    data = f.data()
    whole = read(tmp_path, data, split_tokens=60)
    shown = visible([whole])
    assert len(shown) == 8
    at = 0
    for line in f.lines:
        for cut in (at + len(line) // 2, at + len(line) - 1, at + len(line)):
            part = read(tmp_path, data[:cut], split_tokens=60)
            assert balanced(part, cut)
            assert visible([part, whole]) == shown
        at += len(line)


@QUIET
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_file_read_again_whenever_it_grew_shows_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pieces: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    chance = random.Random(seed)
    lines = eventful().lines
    # Records dropped and swapped at will: the law must not depend on files that make sense.
    lines = [line for line in lines if chance.random() > 0.2]
    for _ in range(chance.randrange(4)):
        i = chance.randrange(len(lines))
        lines.insert(chance.randrange(len(lines)), lines.pop(i))
    data = b"".join(lines)
    cuts = sorted(chance.randrange(len(data)) for _ in range(pieces))
    whole = read(folder, data, split_tokens=60, agent="claude_code")
    grown = [read(folder, data[:cut], split_tokens=60, agent="claude_code") for cut in cuts]
    assert visible([*grown, whole]) == visible([whole])


# The ledger against the bytes


def missing_text(data: bytes, result: UnitResult) -> list[str]:
    """Visible texts of part_of records that their exchange does not hold."""
    exchanges = {e.exchange_id: e for e in result.exchanges}
    missing = []
    for row in result.ledger:
        if row.state != "part_of" or row.ref is None:
            continue
        exchange = exchanges[row.ref]
        for line in data[row.byte_start : row.byte_end].split(b"\n"):
            message = json.loads(line).get("message") if line.strip() else None
            content = message.get("content") if isinstance(message, dict) else message
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            for block in blocks:
                text = block.get("text") or ""
                if block["type"] == "text" and text.strip() and not text.startswith(("<command-", "<ide_")):
                    if text not in exchange.user_text and text not in exchange.agent_text:
                        missing.append(text)
                elif block["type"] == "thinking" and block["thinking"] not in exchange.thinking:
                    missing.append(block["thinking"])
    return missing


def test_the_text_of_each_record_is_found_in_its_exchange(tmp_path: Path) -> None:
    data = eventful().data()
    result = read(tmp_path, data, split_tokens=60)
    assert missing_text(data, result) == []
    assert sum(row.n_records for row in result.ledger if row.state == "part_of") > 25


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the real transcripts beside the repository")
def test_real_files_balance_and_hold_their_text() -> None:
    files = sorted((SHARED / "claude_code").rglob("*.jsonl"), key=lambda p: p.stat().st_size)[:24]
    assert len(files) == 24
    n_exchanges = 0
    for path in files:
        data = path.read_bytes()
        result = read_unit(path, path.name, len(data), ScanConfig(privacy="off"))
        assert balanced(result, len(data), path.name)
        assert missing_text(data, result) == []
        n_exchanges += len(result.exchanges)
    assert n_exchanges > 40
