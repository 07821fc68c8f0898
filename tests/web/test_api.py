"""The JSON API over the small bundle: what each address tells, its bounds, and what bad input gets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from backfill.web.api import ENDPOINTS
from tests.bundle_fixture import Fixture, write_bundle
from tests.web.client import client_of
from tests.web.web_bundles import write_empty, write_hostile, write_many_rooms, write_single


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_hostile(tmp_path_factory.mktemp("api") / "bundle")


@pytest.fixture(scope="module")
def client(made: Fixture) -> Iterator[TestClient]:
    with client_of(made.path) as client:
        yield client


def get(client: TestClient, address: str, **params: Any) -> dict[str, Any]:
    answer = client.get(address, params=params)
    assert answer.status_code == 200, answer.text
    tree: dict[str, Any] = answer.json()
    return tree


def test_search_gives_passages_with_matches(client: TestClient, made: Fixture):
    tree = get(client, "/api/search", q="migration deadlock", k=3)
    hit = tree["hits"][0]
    assert hit["exchange_id"] == made.id("migrate")
    assert tree["mode"] == "default"
    answer = next(one for one in hit["passages"] if one["field"] == "agent_text")
    assert "sorted the updates by primary key" in answer["text"]
    words = {answer["text"][start:end] for start, end in answer["matches"]}
    assert "deadlock" in words
    assert hit["places"][0]["project"] == "shop/api"


def test_search_filters_and_modes(client: TestClient, made: Fixture):
    tree = get(client, "/api/search", q="yes", project="shop/checkout", mode="verbatim-bm25")
    assert [hit["exchange_id"] for hit in tree["hits"]] == [made.id("yes1")]
    miss = get(client, "/api/search", q='"deadlock" migration', project="shop/checkout")
    assert miss["hits"] == []
    assert miss["closest_miss"]["exchange_id"] == made.id("migrate")
    assert "kept out" in miss["closest_miss"]["note"]


def test_exchanges_come_newest_first_in_pages(client: TestClient, made: Fixture):
    seen: list[str] = []
    cursor = ""
    while True:
        page = get(client, "/api/exchanges", limit=3, cursor=cursor)
        seen += [entry["exchange_id"] for entry in page["exchanges"]]
        cursor = page["cursor"]
        if not cursor:
            break
    order = ("parser", "long", "hostile", "yes2", "migrate", "yes1", "retry", "nodate")
    assert seen == [made.id(name) for name in order]
    assert page["total"] == len(order)
    january = get(client, "/api/exchanges", since="2026-02-01", until="2026-02-28", project="checkout")
    assert {entry["exchange_id"] for entry in january["exchanges"]} == {made.id("retry"), made.id("yes1")}


def test_an_exchange_with_all_that_belongs_to_it(client: TestClient, made: Fixture):
    tree = get(client, f"/api/exchanges/{made.id('retry')[:10]}", render="html")
    assert tree["object"]["exchange_core"] == "Added retries with jittered backoff to the payment worker"
    assert tree["object"]["files_touched"] == [{"path": "src/payments/worker.py", "action": "edited", "origin": "tool"}]
    assert tree["object"]["room_assignments"][0]["room_key"] == "retry_timeout"
    assert [one["exchange_id"] for one in tree["next"]] == [made.id("yes1")]
    assert tree["occurrences"][0]["started_at"] == "2026-02-10T09:00:00Z"
    assert [claim["replacement"] for claim in tree["claims"]] == ["The payment worker retries for 60 seconds."]
    text = {one["field"]: one for one in tree["text"]["passages"]}
    assert text["agent_text"]["html"].startswith("<p>I set retry_timeout")
    assert tree["text"]["tools"][0]["name"] == "Edit"


def test_a_long_text_comes_whole_in_pages_cut_at_lines(client: TestClient, made: Fixture):
    address = f"/api/exchanges/{made.id('long')}"
    page = get(client, address, chars=9000)["text"]
    whole = made.exchange["long"].agent_text
    found = ""
    for _ in range(60):
        assert sum(len(one["text"]) for one in page["passages"]) <= 2 * 9000
        for one in page["passages"]:
            if one["field"] == "agent_text":
                assert one["start"] == len(found)
                found += one["text"]
                assert found.endswith(("\n", "."))
        if not page["cursor"]:
            break
        page = get(client, f"{address}/text", cursor=page["cursor"], chars=9000)
    assert found == whole


def test_text_around_a_query(client: TestClient, made: Fixture):
    page = get(client, f"/api/exchanges/{made.id('long')}", q="entry 2987", chars=500)["text"]
    passage = next(one for one in page["passages"] if one["field"] == "agent_text")
    assert "entry 2987 was checked" in passage["text"]
    assert passage["before"] == "agent_text:0"


def test_rooms_and_one_room(client: TestClient, made: Fixture):
    page = get(client, "/api/rooms", limit=2)
    assert len(page["rooms"]) == 2
    assert page["total"] == 7
    assert page["cursor"] == "2"
    assert {room["type"] for room in get(client, "/api/rooms", type="workflow")["rooms"]} == {"workflow"}
    assert [room["key"] for room in get(client, "/api/rooms", q="Lock order")["rooms"]] == ["lock_order"]
    room = get(client, "/api/rooms/concept:lock_order")
    assert [hit["exchange_id"] for hit in room["hits"]] == [made.id("migrate")]


def test_claims_show_what_replaced_them(client: TestClient):
    current = get(client, "/api/claims")
    assert all(claim["superseded_by"] is None for claim in current["claims"])
    assert current["hidden"] == 1
    every = get(client, "/api/claims", superseded="true", limit=1)
    assert every["cursor"] == "1"
    found = get(client, "/api/claims", superseded="true", q="payment worker retries")["claims"]
    old = next(claim for claim in found if claim["superseded_by"])
    assert "45 seconds" in old["text"]
    assert "60 seconds" in old["replacement"]


def test_the_timeline_adds_up(client: TestClient):
    tree = get(client, "/api/timeline", projects=2)
    assert tree["months"] == ["2026-02", "2026-03", None]
    assert tree["projects"][0] == "shop/api"
    assert sum(cell["exchanges"] for cell in tree["cells"]) == 8
    assert {cell["project"] for cell in tree["cells"]} == {*tree["projects"], None}


def test_pack_and_stats(client: TestClient):
    pack = get(client, "/api/pack", budget=300)
    assert 0 < pack["tokens"] <= 300
    assert "Added retries with jittered backoff" in pack["text"]
    stats = get(client, "/api/stats")
    assert stats["modes"][0] == "default"
    assert {entry["name"]: entry["exchanges"] for entry in stats["agents"]} == {"claude_code": 7, "codex": 1}
    assert stats["first_at"] == "2026-02-10T09:00:00Z"


@pytest.mark.parametrize("n_rooms", [3_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_the_palace_holds_many_rooms(tmp_path: Path, n_rooms: int):
    with client_of(write_many_rooms(tmp_path / "bundle", n_rooms).path) as client:
        tree = get(client, "/api/palace")
        assert sum(group["rooms"] for group in tree["groups"]) == n_rooms
        for group in tree["groups"]:
            shown = sum(tile["exchanges"] for tile in group["tiles"])
            assert shown + group["rest_exchanges"] == group["exchanges"]
            assert len(group["tiles"]) + group["rest_rooms"] == group["rooms"]
        answer = client.get("/api/palace", params={"by": "project"})
        assert len(answer.content) < 100_000
        by_project = answer.json()
        assert by_project["more_groups"] > 20
        none = get(client, "/api/palace", by="project", group="", limit=5, skip=7)
        assert (none["groups"][0]["skipped"], len(none["groups"][0]["tiles"])) == (7, 5)
        assert client.get("/api/palace", params={"group": "nobody"}).status_code == 404


@pytest.mark.parametrize("write", [write_empty, write_single])
def test_hardly_anything_is_no_error(write: Any, tmp_path: Path):
    with client_of(write(tmp_path / "bundle").path) as client:
        for address in ("/api/stats", "/api/exchanges", "/api/rooms", "/api/palace", "/api/claims", "/api/timeline",
                        "/api/search?q=anything", "/api/pack"):  # fmt: skip
            assert client.get(address).status_code == 200, address
        assert client.get("/api/exchanges/abcdef").status_code == 404


BAD = [
    ("/api/search", 400), ("/api/search?q=", 400), ("/api/search?q=x&k=0", 400), ("/api/search?q=x&k=51", 400),
    ("/api/search?q=x&k=ten", 400), ("/api/search?q=x&mode=magic", 400), ("/api/search?q=x&modes=claims", 400),
    ("/api/search?q=x&q=y", 400), ("/api/search?q=x&since=yesterday", 400), ("/api/search?q=x&tier=gold", 400),
    ("/api/search?q=x&kind=lie", 400), ("/api/search?q=x&room=nope:x", 400), ("/api/search?q=...", 400),
    ("/api/search?q=" + "y" * 2001, 400), ("/api/search?q=x&per_session=perhaps", 400),
    ("/api/exchanges?limit=0", 400), ("/api/exchanges?limit=201", 400), ("/api/exchanges?cursor=-1", 400),
    ("/api/exchanges?cursor=99999999999", 400), ("/api/exchanges?cursor=%E2%91%A0", 400),
    ("/api/exchanges/zz", 400), ("/api/exchanges/abcdef", 404), ("/api/exchanges/..%2f..%2fetc%2fpasswd", 404),
    ("/api/exchanges/abcdef/text?cursor=x", 404), ("/api/exchanges/%00", 400),
    ("/api/rooms/nowhere", 404), ("/api/rooms/%F0%28", 404), ("/api/rooms?type=cellar", 400),
    ("/api/palace?by=colour", 400), ("/api/palace?limit=501", 400), ("/api/claims?cursor=x", 400),
    ("/api/timeline?projects=0", 400), ("/api/pack?budget=0", 400), ("/api/pack?budget=1", 400),
    ("/api/pack?budget=200001", 400), ("/api/pack?what=all", 400), ("/api/stats?x=1", 400),
    ("/api/nothing", 404), ("/nothing", 404), ("/static/../app.py", 404), ("/static/%2e%2e/app.py", 404),
]  # fmt: skip


@pytest.mark.parametrize(("address", "status"), BAD)
def test_bad_input_gets_one_clear_refusal(client: TestClient, made: Fixture, address: str, status: int):
    answer = client.get(address)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"kind", "message", "hint"}
    assert error["message"]
    for leak in ("Traceback", str(made.path), "/backfill/", "site-packages", 'File "'):
        assert leak not in answer.text


def test_a_cursor_of_another_exchange_is_refused(client: TestClient, made: Fixture):
    answer = client.get(f"/api/exchanges/{made.id('yes1')}/text", params={"cursor": "tools.9.head:3"})
    assert answer.status_code == 400


NAMES = sorted({name for endpoint in ENDPOINTS for name in endpoint.params.__struct_fields__} | {"x", "K"})
ODD = st.sampled_from(["", "true", "\x00", "*", "[", "..", "0"])
VALUES = st.one_of(st.text(max_size=20), st.integers(-(10**20), 10**20).map(str), ODD)


@given(
    st.sampled_from(ENDPOINTS),
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4),
    st.text(min_size=1, max_size=12),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_asked_the_answer_is_json_and_no_failure(
    client: TestClient, endpoint: Any, params: dict[str, str], part: str
):
    from urllib.parse import quote

    raw = part.encode("utf-8", "surrogatepass")
    address = endpoint.path.replace("{id}", quote(raw, safe="")).replace("{key}", quote(raw, safe=""))
    sound = {name: value.encode("utf-8", "replace").decode() for name, value in params.items()}
    answer = client.get(address, params=sound)
    assert answer.status_code in (200, 400, 404), answer.text
    assert isinstance(answer.json(), dict)


def test_repeats_are_cheap(client: TestClient):
    first = client.get("/api/timeline")
    again = client.get("/api/timeline", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/api/timeline").content == first.content
    page = client.get("/static/app.js")
    assert client.get("/static/app.js", headers={"if-none-match": page.headers["etag"]}).status_code == 304


def test_an_etag_gives_no_answer_to_bad_input(client: TestClient):
    etag = client.get("/api/stats").headers["etag"]
    assert client.get("/api/search?q=", headers={"if-none-match": etag}).status_code == 400


def test_openapi_names_every_address(client: TestClient):
    document = get(client, "/openapi.json")
    assert set(document["paths"]) == {endpoint.path for endpoint in ENDPOINTS}
    assert "$defs" not in json.dumps(document)
    search = document["paths"]["/api/search"]["get"]
    k = next(one for one in search["parameters"] if one["name"] == "k")
    assert (k["in"], k["required"], k["schema"]["maximum"]) == ("query", False, 50)
    for name in ("SearchAnswer", "ErrorAnswer", "Passage"):
        assert name in document["components"]["schemas"]


def test_a_bundle_without_a_trusted_encoder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with client_of(write_bundle(tmp_path / "bundle").path, trust_encoder=False) as client:
        assert "--trust-encoder" in get(client, "/api/stats")["encoder"]
        assert get(client, "/api/search", q="deadlock")["warnings"]
