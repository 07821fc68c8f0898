"""Pages are answered while searches wait, searches one after the other, and what waits at the end is dropped."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from backfill.web.app import make_app
from backfill.web.follow import Follower
from backfill.web.pools import serving_pools
from tests.bundle_fixture import SPECS, write_bundle
from tests.web.client import BASE, PORT, client_of


def test_pages_do_not_wait_behind_searches(tmp_path: Path):
    path = write_bundle(tmp_path / "bundle", specs=SPECS[:2]).path
    held = threading.Event()
    answers: list[int] = []
    with serving_pools(path) as pools:
        app = make_app(Follower(path, pools.pages, trust_encoder=True), pools, port=PORT)
        with TestClient(app, base_url=BASE) as client:
            pools.searches.submit(held.wait, 60)
            asked = threading.Thread(
                target=lambda: answers.append(client.get("/api/search", params={"q": "deadlock"}).status_code)
            )
            asked.start()
            try:
                assert client.get("/api/stats").status_code == 200
                assert client.get("/api/rooms").status_code == 200
                assert not answers
            finally:
                held.set()
                asked.join(60)
    assert answers == [200]


def test_a_search_too_many_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_bundle(tmp_path / "bundle", specs=SPECS[:2]).path
    monkeypatch.setattr("backfill.web.app.MAX_WAITING", 0)
    with client_of(path) as client:
        answer = client.get("/api/search", params={"q": "deadlock"})
        assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "busy")
        assert client.get("/api/stats").status_code == 200
        monkeypatch.setattr("backfill.web.app.MAX_WAITING", 1)
        # The refusal is not remembered, and one search at a time is none too many.
        assert [client.get("/api/search", params={"q": q}).status_code for q in ("deadlock", "licence")] == [200, 200]


def test_the_pools_end_with_their_block(tmp_path: Path):
    with serving_pools(tmp_path) as pools:
        assert pools.encoding.submit(sum, [1, 2]).result(60) == 3
    with pytest.raises(RuntimeError):
        pools.searches.submit(sum, [])
