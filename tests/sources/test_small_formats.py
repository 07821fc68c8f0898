"""fx, CodeBuddy and WorkBuddy: calls, times of every unit, working directories."""

from __future__ import annotations

import json
from pathlib import Path

from tests.claude_lines import read
from tests.sources.small_files import as_lines, codebuddy_lines, fx_document, workbuddy_lines


def test_fx_takes_session_directory_model_and_calls(tmp_path: Path) -> None:
    result = read(tmp_path, json.dumps(fx_document()).encode())
    first, second = result.occurrences
    assert (first.session_id, first.cwd, first.project, first.model) == ("fx-1", "/home/me/alpha", "alpha", "demo/m")
    assert (first.anchor, second.anchor, first.ended_at) == ("1", "5", 1787261100000000)
    assert [(t.name, t.paths, t.head) for t in result.exchanges[0].tools] == [
        ("read_file", ("src/a.py",), "README mark-list")
    ]


def test_buddies_take_times_of_any_unit(tmp_path: Path) -> None:
    for lines, session, model, tool in (
        (codebuddy_lines(), "cb-1", "", ("read_file", ("a.py",), "mark-result")),
        (workbuddy_lines(), "wb-1", "wb", ("open_file", ("hello.py",), "mark-printed")),
    ):
        result = read(tmp_path, as_lines(lines))
        (place,) = result.occurrences
        assert (place.session_id, place.model, place.anchor) == (session, model, "2")
        assert place.started_at is not None
        assert place.ended_at == place.started_at + 3_000_000
        assert [(t.name, t.paths, t.head) for t in result.exchanges[0].tools] == [tool]
