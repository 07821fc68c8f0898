"""A web site in the same browser gets nothing: by another Host (DNS rebinding), Origin or fetch site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.bundle_fixture import write_bundle
from tests.web.client import PORT, client_of

ADDRESSES = ("/", "/docs", "/openapi.json", "/static/app.js", "/api/stats", "/api/search?q=retry", "/nothing")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    bundle: Path = write_bundle(tmp_path_factory.mktemp("guard") / "bundle").path
    with client_of(bundle) as client:
        yield client


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"127.0.0.1.evil.example:{PORT}",
     f"localhost.evil.example:{PORT}", f"127.0.0.2:{PORT}", f"0.0.0.0:{PORT}", f"[::]:{PORT}", "",
     f"localhost:{PORT}@evil"],
)  # fmt: skip
def test_another_host_name_is_refused(client: TestClient, address: str, host: str):
    answer = client.get(address, headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["error"]["kind"] == "forbidden"
    assert "retry" not in answer.text


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]", "LOCALHOST"])
def test_our_own_names_are_answered(client: TestClient, name: str):
    host = f"{name}:{PORT}"
    assert client.get("/api/stats", headers={"host": host, "origin": f"http://{host.lower()}"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1", "http://localhost"]
)
def test_another_origin_is_refused(client: TestClient, origin: str):
    assert client.get("/api/stats", headers={"origin": origin}).status_code == 403


def test_what_the_browser_marks_as_cross_site_is_refused(client: TestClient):
    for site in ("cross-site", "same-site", "anything"):
        for address in ("/api/stats", "/static/app.js"):
            assert client.get(address, headers={"sec-fetch-site": site}).status_code == 403
    opened = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=opened).status_code == 200
    assert client.get("/api/stats", headers=opened).status_code == 403
    framed = {**opened, "sec-fetch-dest": "iframe"}
    assert client.get("/", headers=framed).status_code == 403
    assert client.get("/api/stats", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_two_hosts_or_two_origins_are_refused(client: TestClient):
    own = f"127.0.0.1:{PORT}"
    assert client.get("/", headers=[("host", own), ("host", "evil.example")]).status_code == 403
    twice = [("origin", f"http://{own}"), ("origin", "http://evil.example")]
    assert client.get("/", headers=twice).status_code == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading(client: TestClient, method: str):
    answer = client.request(method, "/api/stats")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("address", [*ADDRESSES, "/api/search", "/api/exchanges/zz"])
def test_every_answer_carries_the_headers(client: TestClient, address: str):
    headers = client.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("access-control-")]


def test_an_endless_address_is_refused(client: TestClient):
    answer = client.get("/api/search?q=" + "x" * 20_000)
    assert answer.status_code == 414
