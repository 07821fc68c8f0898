"""Workers' states from their lines, and the Prometheus text of a run."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

from backfill.errors import UsageError
from backfill.metrics import metrics_served, prometheus_text
from backfill.worker_log import Event
from backfill.worker_states import Tally, workers_of

STATUS = {
    "state": "unfinished",
    "stages": {"scan": {"done": 1, "total": 2}},
    "rate": {"m5": 1.5, "overall": 2.0},
    "token_rate": {"m5": 100.0, "overall": 90.0},
    "eta_s": 12.5,
    "workers": [{"id": 'a"\n', "host": "h", "state": "working", "silent_s": 3.0}],
    "failures": {"dropped": 4},
}


def event(at: float, kind: str, shard: int = -1, worker: str = "a", pid: int = 1, **stats: int) -> Event:
    return Event(at, kind, worker, "host", pid, "distill", shard, "", dict(stats))


def test_a_worker_with_a_shard_in_hand_works() -> None:
    lines = [event(1, "take", 4), event(2, "take", 5), event(3, "done", 4, n=7), event(4, "take", 6, "b")]
    a, b = workers_of(lines, now=10)
    assert (a["id"], a["state"], a["shard"], a["last_commit"], a["items"], a["silent_s"]) == (
        "a",
        "working",
        5,
        3,
        7,
        7,
    )
    assert (b["state"], b["last_commit"], b["host"]) == ("working", None, "host")


@pytest.mark.parametrize("ended", ["stopped", "failed"])
def test_how_a_worker_ended(ended: str) -> None:
    [state] = workers_of([event(1, "take", 4), event(2, ended)], now=3)
    assert (state["state"], state["shard"]) == (ended, None)


def test_another_process_of_the_name_holds_nothing_of_the_one_before() -> None:
    [state] = workers_of([event(1, "take", 4), event(2, "take", 9, pid=2), event(3, "done", 9, pid=2)], now=3)
    assert (state["state"], state["shard"]) == ("idle", None)


def test_the_progress_note_names_the_commonest_refusals() -> None:
    tally = Tally()
    tally.note({"tokens_in": 10, "failures": {"bloat": 1}})
    text = tally.note({"tokens_out": 5, "failures": {"dropped": 3}})
    assert text.endswith("refused: dropped 3, bloat 1")
    assert Tally().note({"n": 3}) == ""


def test_labels_are_escaped() -> None:
    text = prometheus_text(STATUS)
    assert 'backfill_worker_silent_seconds{worker="a\\"\\n",host="h",state="working"} 3' in text
    assert 'backfill_shards_done{stage="scan"} 1\n' in text
    assert 'backfill_refused_answers_total{reason="dropped"} 4\n' in text
    assert all(line.startswith(("#", "backfill_")) for line in text.splitlines())


def test_a_scrape_of_a_folder_without_a_plan_is_503(tmp_path: Path) -> None:
    with metrics_served(tmp_path, 0) as port:
        asked = HTTPConnection("127.0.0.1", port, timeout=10)
        asked.request("GET", "/metrics")
        assert asked.getresponse().status == 503
        asked.close()
        asked.request("GET", "/")
        assert asked.getresponse().status == 404
        asked.close()


def test_a_taken_port_is_bad_usage(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"metrics_port {port}"), metrics_served(tmp_path, port):
            pass
