"""The page in a real Chromium: by keyboard, by mouse, with hostile transcripts, on a phone, with very many rooms.

Screenshots go to the folder that BACKFILL_SCREENSHOTS names, for a person to look at. Every page that was opened must
have caused no console error, no request to elsewhere and no scroll bar to the side.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.bundle_fixture import Fixture
from tests.web.test_serve import serving
from tests.web.web_bundles import (
    PROBE,
    write_empty,
    write_hostile,
    write_many_rooms,
    write_single,
    write_years,
)

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)
DESK, PHONE = (1280, 900), (390, 844)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Any], tuple[Fixture, str]]]:
    """Writes a bundle and serves it, once a module for each way of writing."""
    known: dict[Any, tuple[Fixture, str]] = {}
    with ExitStack() as stack:

        def serve(write: Any) -> tuple[Fixture, str]:
            if write not in known:
                fixture = write(tmp_path_factory.mktemp("browser") / "bundle")
                _, line = stack.enter_context(serving(fixture.path))
                known[write] = fixture, line["url"]
            return known[write]

        yield serve


@pytest.fixture
def visit(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens a page of a served bundle; at the end, what must never happen must not have happened."""
    troubles: list[str] = []
    pages: list[Any] = []
    with ExitStack() as stack:

        def open_page(
            url: str,
            address: str = "",
            size: tuple[int, int] = DESK,
            scheme: str = "light",
            expected: tuple[str, ...] = (),
        ) -> Any:
            def told(message: Any) -> None:
                if message.type == "error" and not any(text in message.text for text in expected):
                    troubles.append(message.text)

            context = chromium.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            stack.callback(context.close)
            page = context.new_page()
            page.on("console", told)
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda asked: None if asked.url.startswith(url) else troubles.append(asked.url))
            page.on("dialog", lambda dialog: (troubles.append("dialog"), dialog.dismiss()))
            page.goto(url + address)
            settle(page)
            pages.append(page)
            return page

        yield open_page
        for number, page in enumerate(pages):
            settle(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls to the side"
            folder = os.environ.get("BACKFILL_SCREENSHOTS")
            if folder:
                page.screenshot(path=f"{folder}/{request.node.name.replace('/', '_')}-{number}.png")
    assert troubles == []


def settle(page: Any) -> None:
    page.wait_for_load_state("networkidle")
    until(page, "!document.getElementById('main').hasAttribute('aria-busy')")


def until(page: Any, expression: str) -> None:
    """Waits until the expression holds. The page's policy keeps Playwright's own `wait_for_function` from running."""
    ends = time.monotonic() + 30
    while not page.evaluate(expression):
        assert time.monotonic() < ends, expression
        page.wait_for_timeout(30)


def test_search_as_you_type_with_the_keyboard_alone(served: Any, visit: Any):
    fixture, url = served(write_hostile)
    page = visit(url)
    page.keyboard.press("/")
    page.keyboard.type("migration deadlock", delay=30)
    page.wait_for_selector(".hit")
    first = page.locator(".hit").first
    assert "deadlock of migration 0042" in first.inner_text()
    assert "deadlock" in [mark.lower() for mark in page.locator(".hit mark").all_inner_texts()]
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector(".exchange")
    assert fixture.id("migrate")[:12] in page.url
    assert "sorted the updates by primary key" in page.locator(".agent_text").inner_text()
    page.keyboard.press("]")
    until(page, "document.querySelector('.exchange .core').textContent.includes('staging')")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('.exchange .core').textContent.includes('deadlock')")
    page.keyboard.press("Escape")
    page.wait_for_selector(".hit")
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("?")
    page.locator("#keys button").click()
    assert not page.locator("#keys").is_visible()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_selector(".chart")


def test_filters_narrow_what_is_found(served: Any, visit: Any):
    _, url = served(write_hostile)
    page = visit(url, "#/?q=yes")
    page.locator(".filters summary").click()
    page.locator("label:has-text('Project') select").select_option("shop/checkout")
    page.wait_for_url("**project=shop%2Fcheckout**")
    settle(page)
    assert {"shop/checkout" in text for text in page.locator(".hit .meta").all_inner_texts()} == {True}
    page.locator(".clear").click()
    page.wait_for_url(lambda address: "project" not in address)


def test_hostile_transcripts_do_nothing(served: Any, visit: Any):
    fixture, url = served(write_hostile)
    short = fixture.id("hostile")[:12]
    for address in ("#/?q=render%20markup", f"#/exchange/{short}?q=render", "#/room/concept:markup_escape", "#/palace",
                    "#/timeline", "#/claims?all=1"):  # fmt: skip
        page = visit(url, address)
        page.wait_for_timeout(200)
        assert page.title() != PROBE
        assert page.locator("iframe, object, embed, #main form, #main svg[onload], #main img").count() == 0
    page = visit(url, f"#/exchange/{short}")
    for link in page.locator(".verbatim a").all():
        assert link.get_attribute("href").startswith("https://example.org/")
        assert "noopener" in link.get_attribute("rel")
    assert "<script>document.title" in page.locator(".agent_text").inner_text()
    page.keyboard.press("r")
    assert "# <script>document.title" in page.locator(".agent_text").inner_text()
    for summary in page.locator(".kept summary").all():
        summary.click()
    settle(page)
    assert page.title() != PROBE


def test_a_page_from_elsewhere_gets_nothing(served: Any, chromium: Any):
    """A site whose name was made to resolve to 127.0.0.1, and another site that asks across."""
    _, url = served(write_hostile)
    port = url.rsplit(":", 1)[1].strip("/")
    browser = chromium.browser_type.launch(
        executable_path=CHROMIUM, args=["--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
    )
    try:
        page = browser.new_page()
        answer = page.goto(f"http://evil.example:{port}/api/stats")
        assert answer.status == 403
        assert "exchanges" not in page.content()
        page.goto("data:text/html,<h1>elsewhere</h1>")
        for mode in ("cors", "no-cors"):
            got = page.evaluate(
                "([url, mode]) => fetch(url, {mode}).then((r) => r.text(), (e) => 'failed')", [f"{url}api/stats", mode]
            )
            assert got in ("failed", "")
        page.set_content(f"<iframe src='{url}'></iframe><script src='{url}static/app.js'></script>")
        page.wait_for_timeout(300)
        assert all("Search" not in (frame.content() or "") for frame in page.frames[1:])
    finally:
        browser.close()


def test_a_long_exchange_is_read_to_its_end(served: Any, visit: Any):
    fixture, url = served(write_hostile)
    page = visit(url, f"#/exchange/{fixture.id('long')[:12]}")
    while page.locator(".said .more").is_visible():
        n_before = page.evaluate("document.querySelector('.talk').innerText.length")
        page.locator(".said .more").click()
        until(page, f"document.querySelector('.talk').innerText.length > {n_before}")
        until(page, "!document.querySelector('.said .more').disabled")
    text = page.locator(".agent_text").inner_text()
    assert all(f"Step {n}:" in text for n in range(3000))
    around = visit(url, f"#/exchange/{fixture.id('long')[:12]}?q=entry%202500")
    assert "ledger entry 2500" in around.locator(".agent_text").inner_text()
    around.locator(".missing").first.click()
    until(around, "document.querySelector('.agent_text').innerText.includes('Step 0:')")


@pytest.mark.parametrize("size", [DESK, PHONE])
def test_the_palace_of_forty_thousand_rooms_can_be_walked(served: Any, visit: Any, size: tuple[int, int]):
    _, url = served(write_many_rooms)
    page = visit(url, "#/palace", size)
    page.wait_for_selector(".tile")
    assert 20 <= page.locator(".tile").count() <= 500
    assert "40,000 rooms" in page.locator(".lead").inner_text()
    page.locator(".tile.rest").first.click()
    page.wait_for_url("**skip=**")
    page.wait_for_selector(".tile")
    page.go_back()
    page.wait_for_selector(".group-name")
    page.locator(".segmented a").nth(1).click()
    page.wait_for_url("**by=project**")
    page.wait_for_selector(".tile")
    page.locator(".group-name").first.click()
    page.wait_for_url("**group=**")
    page.locator(".finder input").fill("retry_retry_0")
    page.go_back()
    visit(url, "#/palace?by=project&group=", size).wait_for_selector(".tile")


def test_a_room_leads_to_its_exchanges(served: Any, visit: Any):
    fixture, url = served(write_hostile)
    page = visit(url, "#/palace")
    page.locator(".tile", has_text="lock order").first.click()
    page.wait_for_selector(".entry")
    page.locator(".entry a").first.click()
    page.wait_for_selector(".exchange")
    assert fixture.id("migrate")[:12] in page.url


def test_a_bar_of_the_timeline_leads_to_its_exchanges(served: Any, visit: Any):
    _, url = served(write_years)
    page = visit(url, "#/timeline")
    label = page.locator(".chart a").first.get_attribute("aria-label")
    page.locator(".chart a").first.click()
    page.wait_for_selector(".entry")
    assert page.locator(".lead").inner_text().split()[-2] == label.split(": ")[1].split()[0]


def test_claims_show_their_history(served: Any, visit: Any):
    _, url = served(write_hostile)
    page = visit(url, "#/claims")
    assert page.locator(".claim.gone").count() == 0
    page.locator("label:has-text('Show replaced')").click()
    page.wait_for_selector(".claim.gone")
    gone = page.locator(".claim.gone").inner_text()
    assert "45 seconds" in gone
    assert "Now: The payment worker retries for 60 seconds." in gone


@pytest.mark.parametrize("address", ["#/room/%", "#/exchange/zz", "#/room/none", "#/?q=x&mode=magic", "#/?since=soon"])
def test_an_address_that_leads_nowhere_says_so(served: Any, visit: Any, address: str):
    _, url = served(write_hostile)
    page = visit(url, address, expected=("status of 404", "status of 400"))
    assert page.locator("[role=alert]").inner_text()


@pytest.mark.parametrize("write", [write_empty, write_single])
@pytest.mark.parametrize("address", ["", "#/?q=retry", "#/palace", "#/timeline", "#/claims", "docs"])
def test_hardly_anything_is_shown_as_such(served: Any, visit: Any, write: Any, address: str):
    _, url = served(write)
    page = visit(url, address)
    assert page.locator("[role=alert]").count() == 0
    assert page.locator("main").inner_text().strip()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_light_and_dark_on_desk_and_phone(served: Any, visit: Any, size: tuple[int, int], scheme: str):
    fixture, url = served(write_hostile)
    for address in ("#/?q=retry", "#/palace", "#/timeline", "#/claims?all=1", f"#/exchange/{fixture.id('retry')[:12]}"):
        page = visit(url, address, size, scheme)
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(250, 248, 244)" if scheme == "light" else "rgb(22, 21, 19)")
    page.keyboard.press("d")
    page.reload()
    settle(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper


def test_the_api_page_tries_an_address(served: Any, visit: Any):
    _, url = served(write_hostile)
    page = visit(url, "docs")
    page.locator(".operation", has_text="/api/search").locator("> summary").click()
    form = page.locator(".operation[open] form")
    form.locator("input[name=q]").fill("deadlock")
    form.locator("button").click()
    page.wait_for_selector(".operation[open] pre.plain")
    assert '"hits"' in page.locator(".operation[open] pre.plain").inner_text()
