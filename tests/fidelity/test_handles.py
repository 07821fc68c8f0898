"""Handles: exact kinds and spans."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.fidelity.handles import find_handles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("edit src/app/retry.py now", [("path", "src/app/retry.py")]),
        ("edit src/app.ts:42 now", [("path", "src/app.ts"), ("number", "42")]),
        (r"see C:\proj\a.ts here", [("path", r"C:\proj\a.ts")]),
        ("set retry_timeout here", [("identifier", "retry_timeout")]),
        ("call getUserById() in UserService", [("identifier", "getUserById()"), ("identifier", "UserService")]),
        ("use np.float32 there", [("identifier", "np.float32")]),
        ("pass --no-verify and -v", [("identifier", "--no-verify"), ("identifier", "-v")]),
        ("from 30 s to 45s", [("number", "30 s"), ("number", "45s")]),
        ("grew 1.5% to 1,240 rows", [("number", "1.5%"), ("number", "1,240 rows")]),
        ("on 2026-03-01 at 14:05", [("number", "2026-03-01"), ("number", "14:05")]),
        ("bumped to 20.1.3 from v2.0", [("version", "20.1.3"), ("version", "v2.0")]),
        ("a ConnectionResetError again", [("error", "ConnectionResetError")]),
        ("got ECONNRESET and HTTP 502", [("error", "ECONNRESET"), ("error", "HTTP 502")]),
        ("ended with exit code 137 today", [("error", "exit code 137")]),
        ('it says "no such table" then', [("quoted", "no such table")]),
        ("run `npm run build` first", [("quoted", "npm run build")]),
        ("it runs on localhost. Then (see localhost) it stops", [("host", "localhost"), ("host", "localhost")]),
        ("see `retry_timeout` first", [("identifier", "retry_timeout")]),
        ("commit 3f2a9bc broke it", [("hash", "3f2a9bc")]),
        ("see https://a.example/b?c=1.", [("url", "https://a.example/b?c=1")]),
        ("at api.internal:8080 or localhost:5432", [("host", "api.internal:8080"), ("host", "localhost:5432")]),
        ("with max_retries=5 and --timeout=30", [("parameter", "max_retries=5"), ("parameter", "--timeout=30")]),
        ("with timeout: 30 there", [("parameter", "timeout: 30")]),
        ("in the project: 3,124 by count", [("number", "3,124")]),
        ("e.g. plain words and/or client/server, i.e. nothing (2 of them).", []),
    ],
)
def test_find_handles(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(handle.kind, handle.text) for handle in find_handles(text)] == expected


@settings(deadline=None)
@given(st.text(max_size=300) | st.text(alphabet="aB1._/-=:`\"' \n\\", max_size=200))
def test_spans_hold_and_do_not_overlap(text: str) -> None:
    end = 0
    for handle in find_handles(text):
        assert text[handle.start : handle.end] == handle.text
        assert handle.start >= end
        end = handle.end
