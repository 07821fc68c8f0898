"""The server follows a bundle that is switched under it, and no request fails for it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from backfill.web import follow
from tests.bundle_fixture import SPECS, write_bundle
from tests.web.client import client_of, searches_meanwhile


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHECK_EVERY_S", 0.01)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", specs=SPECS[:2]).path


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "grown", specs=SPECS).path


def switch(bundle: Path, to: Path) -> None:
    """Puts the files of another state beside the old ones, then replaces the manifest, as the writer does."""
    for file in to.rglob("*"):
        target = bundle / file.relative_to(to)
        if file.is_file() and file.name not in ("manifest.json", "manifest.sha256"):
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            shutil.copyfile(file, part)
            part.replace(target)
    both = (bundle / "manifest.sha256").read_text() + (to / "manifest.sha256").read_text()
    (bundle / "manifest.sha256").write_text(both)
    shutil.copyfile(to / "manifest.json", bundle / "manifest.part")
    (bundle / "manifest.part").replace(bundle / "manifest.json")


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if holds():
            return True
        time.sleep(0.02)
    return False


def total(client: TestClient) -> int:
    answer = client.get("/api/exchanges")
    assert answer.status_code == 200, answer.text
    return int(answer.json()["total"])


def test_a_new_state_is_served_without_a_failed_request(bundle: Path, grown: Path):
    with client_of(bundle) as client:
        assert total(client) == 2
        before = client.get("/api/stats").headers["etag"]
        with searches_meanwhile(client) as statuses:
            switch(bundle, grown)
            assert within(20, lambda: total(client) == len(SPECS))
        assert set(statuses) == {200}
        # Answers to the old state are no answers to the new one.
        after = client.get("/api/stats", headers={"if-none-match": before})
        assert after.status_code == 200
        assert after.headers["etag"] != before


def test_a_damaged_state_is_not_taken(bundle: Path, caplog: pytest.LogCaptureFixture):
    with client_of(bundle) as client:
        good = (bundle / "manifest.json").read_bytes()
        (bundle / "manifest.json").write_bytes(good + b" ")
        client.get("/api/stats")
        assert within(10, lambda: client.get("/api/stats").status_code == 200 and "old state stays" in caplog.text)
        assert total(client) == 2
        (bundle / "manifest.json").unlink()
        time.sleep(0.1)
        assert total(client) == 2


def test_files_that_were_taken_away_lead_to_the_new_state(bundle: Path, grown: Path):
    """`gc` after a switch removes files that the old state never opened."""
    with client_of(bundle) as client:
        switch(bundle, grown)
        keep = {entry.relative_to(grown) for entry in grown.rglob("*")}
        for file in list(bundle.rglob("*.parquet")):
            if file.relative_to(bundle) not in keep:
                file.unlink()
        assert within(20, lambda: total(client) == len(SPECS))


def test_a_part_that_cannot_be_read_is_a_clear_failure(bundle: Path):
    with client_of(bundle) as client:
        for file in bundle.rglob("*.parquet"):
            file.write_bytes(b"PAR1" + b"\0" * (file.stat().st_size - 4))
        answer = client.get("/api/exchanges")
        assert answer.status_code == 500
        assert answer.json()["error"]["kind"] == "bundle"
        assert str(bundle) not in answer.text
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_finished_answers_keep_within_their_room(bundle: Path):
    from backfill.web.cache import Answer, AnswerCache

    cache = AnswerCache(10_000)
    for number in range(100):
        cache.put(f"key {number}", Answer(200, b"x" * 500))
        assert cache.n_bytes <= 10_000
    assert cache.get("key 0") is None
    assert cache.get("key 99") == Answer(200, b"x" * 500)
    cache.put("large", Answer(200, b"x" * 5_000))
    assert cache.get("large") is None
    kept = len(cache)
    cache.put("key 99", Answer(200, b"y"))
    assert len(cache) == kept
