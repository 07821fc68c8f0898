"""Searches in processes of their own: the same answers, and nothing lost where one dies, is late or is switched."""

from __future__ import annotations

import io
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from backfill.web import app, follow, frames
from backfill.web.processes import Ended, SearchProcess, SearchProcesses, default_processes
from tests.bundle_fixture import SPECS, Fixture, write_bundle
from tests.web.client import client_of, searches_meanwhile
from tests.web.test_follow import switch, total, within
from tests.web.test_serve import serving

ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/api/search", {"q": "deadlock of the migration"}),
    ("/api/search", {"q": '"connection pooler"', "k": 3}),
    ("/api/search", {"q": "deadlock", "per_session": "true", "chars": 400, "since": "2020-01-01"}),
    # Nothing stands there by word, and the nearest in meaning wants a vector that was not sent along.
    ("/api/search", {"q": "zzyzx", "mode": "verbatim-bm25"}),
    ("/api/search", {"q": "deadlock", "mode": "vectors"}),
    ("/api/search", {"q": "…"}),
    ("/api/search", {"q": "retry \x00 \u202e 'or 1=1"}),
    ("/api/claims", {"q": "retry"}),
    ("/api/claims", {}),
    ("/api/pack", {"budget": 300, "q": "deadlock"}),
    ("/api/pack", {"budget": 300, "project": "no such"}),
)


@pytest.fixture(scope="module")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("searched") / "bundle")


@pytest.fixture(scope="module")
def processes(fixture: Fixture) -> Iterator[SearchProcesses]:
    with SearchProcesses(fixture.path, 1) as made:
        yield made


@pytest.fixture
def client(fixture: Fixture, processes: SearchProcesses) -> Iterator[TestClient]:
    with client_of(fixture.path, processes=processes) as made:
        yield made


def found(client: TestClient, path: str, params: dict[str, Any]) -> tuple[int, Any]:
    answer = client.get(path, params=params)
    return answer.status_code, {**answer.json(), "took_ms": 0}


def test_a_process_answers_what_the_server_would(fixture: Fixture, client: TestClient):
    with client_of(fixture.path) as alone:
        for path, params in ASKED:
            assert found(client, path, params) == found(alone, path, params), params


def test_without_an_encoder_it_says_so(fixture: Fixture, tmp_path: Path):
    stranger = write_bundle(tmp_path / "bundle").path
    with SearchProcesses(stranger, 1) as own, client_of(stranger, trust_encoder=False, processes=own) as client:
        answer = client.get("/api/search", params={"q": "deadlock"}).json()
        assert "BM25 alone" in answer["warnings"][0]
        assert answer["hits"]


def test_a_process_that_is_killed_in_a_search_is_replaced(client: TestClient, processes: SearchProcesses):
    assert client.get("/api/search", params={"q": "before"}).status_code == 200
    (pid,) = processes.pids
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as executor:
        asked = executor.submit(client.get, "/api/search", params={"q": "deadlock in the middle"})
        time.sleep(0.2)
        assert not asked.done()
        os.kill(pid, signal.SIGKILL)
        assert asked.result(60).status_code == 200
    assert processes.pids != (pid,)
    assert client.get("/api/search", params={"q": "after"}).status_code == 200


def test_a_search_that_ends_every_process_is_given_up(client: TestClient, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:

        def die(process: SearchProcess, *arguments: object) -> frames.Found:
            os.kill(process.pid, signal.SIGKILL)
            raise Ended(late=False)

        patched.setattr(SearchProcess, "ask", die)
        answer = client.get("/api/search", params={"q": "poison"})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "unanswered")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/api/stats").status_code == 200
    # Neither the process nor the refusal stays.
    assert client.get("/api/search", params={"q": "poison"}).status_code == 200


def test_a_search_that_takes_too_long_is_ended(
    client: TestClient, processes: SearchProcesses, monkeypatch: pytest.MonkeyPatch
):
    (pid,) = processes.pids
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(app, "SEARCH_S", 0.5)
    answer = client.get("/api/search", params={"q": "slow"})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "unanswered")
    monkeypatch.undo()
    assert processes.pids != (pid,)
    assert client.get("/api/search", params={"q": "slow"}).status_code == 200


def test_a_search_whose_turn_comes_too_late_costs_no_process(
    client: TestClient, processes: SearchProcesses, monkeypatch: pytest.MonkeyPatch
):
    before = processes.pids
    monkeypatch.setattr(app, "SEARCH_S", -1.0)
    answer = client.get("/api/search", params={"q": "late"})
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "busy")
    assert "retry-after" in answer.headers
    assert processes.pids == before


def test_a_search_that_waited_for_an_opening_process_does_not_end_it(
    client: TestClient, processes: SearchProcesses, monkeypatch: pytest.MonkeyPatch
):
    before = processes.pids
    monkeypatch.setattr(app, "SEARCH_S", 0.3)
    with ThreadPoolExecutor(1) as executor:
        with processes._taken(0):
            asked = executor.submit(client.get, "/api/search", params={"q": "behind the opening of a state"})
            time.sleep(0.6)
        answer = asked.result(60)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "unanswered")
    assert processes.pids == before


def test_no_process_is_started_once_they_are_ended(fixture: Fixture):
    with SearchProcesses(fixture.path, 1) as own:
        with ThreadPoolExecutor(1) as executor, suppress(Ended), own._taken(0) as process:
            executor.submit(own.__exit__, None, None, None).result(30)
            raise Ended(late=False)
        assert own._all == [process]


def test_processes_go_over_to_a_new_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.01)
    bundle = write_bundle(tmp_path / "bundle", specs=SPECS[:2]).path
    grown = write_bundle(tmp_path / "grown", specs=SPECS).path
    with SearchProcesses(bundle, 1) as own, client_of(bundle, processes=own) as client:
        before = own.pids
        with searches_meanwhile(client) as statuses:
            switch(bundle, grown)
            assert within(60, lambda: total(client) == len(SPECS))
        assert set(statuses) == {200}
        assert own.pids == before
        last = client.get("/api/search", params={"q": SPECS[-1].user}).json()["hits"]
        assert SPECS[-1].core in [hit["exchange_core"] for hit in last]


def test_a_replaced_process_and_a_state_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The new process can only open what is there now; the server goes over to that as well, and answers from it."""
    bundle = write_bundle(tmp_path / "bundle", specs=SPECS[:2]).path
    grown = write_bundle(tmp_path / "grown", specs=SPECS).path
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 3600.0)
    with SearchProcesses(bundle, 1) as own, client_of(bundle, processes=own) as client:
        assert client.get("/api/search", params={"q": "deadlock"}).status_code == 200
        switch(bundle, grown)
        os.kill(own.pids[0], signal.SIGKILL)
        answer = client.get("/api/search", params={"q": SPECS[-1].user})
        assert answer.status_code == 200
        assert SPECS[-1].core in [hit["exchange_core"] for hit in answer.json()["hits"]]
        assert total(client) == len(SPECS)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are looked up in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_server(fixture: Fixture, number: int):
    n = 2 if number == signal.SIGINT else 1
    with serving(fixture.path, "--search-processes", str(n)) as (server, line):
        assert httpx.get(f"{line['url']}api/search", params={"q": "deadlock"}, timeout=60).status_code == 200
        searching = children(server.pid)
        assert len(searching) == n
        # It is ended with the server even where it cannot look for its parent.
        os.kill(searching[0], signal.SIGSTOP if number == signal.SIGINT else 0)
        server.send_signal(number)
        server.wait(30)
        assert within(30, lambda: all(ended(pid) for pid in searching))


def test_the_default_is_half_of_the_cores(monkeypatch: pytest.MonkeyPatch):
    for cores, n in ((1, 1), (2, 1), (4, 2), (16, 8)):
        monkeypatch.setattr("backfill.web.processes.usable_cores", lambda cores=cores: cores)
        assert default_processes() == n


@given(st.binary(max_size=64))
def test_what_is_no_message_ends_the_pipe(data: bytes):
    with pytest.raises(frames.PipeClosed):
        frames.receive(io.BytesIO(data), frames.TO_PROCESS)
        frames.receive(io.BytesIO(b""), frames.TO_PROCESS)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary(), st.binary())
def test_a_message_arrives_as_it_was_sent(text: str, params: bytes, vector: bytes):
    message = frames.Search("00ff", "/api/search", params, frames.Query(text, vector))
    pipe = io.BytesIO()
    frames.send(pipe, message)
    whole = pipe.getvalue()
    assert frames.receive(io.BytesIO(whole), frames.TO_PROCESS) == message
    with pytest.raises(frames.PipeClosed):
        frames.receive(io.BytesIO(whole[:-1]), frames.TO_PROCESS)
