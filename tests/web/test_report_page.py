"""The report's page in a real Chromium: light, dark and narrow, without errors, requests or a scroll bar to the side.

Screenshots go to the folder that BACKFILL_SCREENSHOTS names, for a person to look at.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from backfill.report import report_of
from backfill.report_page import page
from tests import fake_encoder
from tests.test_pipeline import SAMPLES, config, go

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
CHROMIUM = next((p for p in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if p), None)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        fake_encoder.install(patch, folder)
        go(config(SAMPLES, kind="scripted"), folder / "run")
    (folder / "report.html").write_text(page(report_of(folder / "run")))
    return folder / "report.html"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
def test_the_page_is_drawn_as_it_is_meant(report: Path, scheme: str, width: int) -> None:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        said: list[str] = []
        asked: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(report.as_uri())
        sideways = tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        sides = tab.evaluate(
            "[...document.querySelectorAll('svg')].find(s => s.querySelector('.band')) && "
            "['250', '818'].map(x => [...document.querySelectorAll(`rect[x='${x}']`)]"
            ".reduce((sum, r) => sum + r.height.baseVal.value, 0))"
        )
        if folder := os.environ.get("BACKFILL_SCREENSHOTS"):
            tab.screenshot(path=str(Path(folder) / f"report-{scheme}-{width}.png"), full_page=True)
        browser.close()
    assert (said, asked) == ([], [report.as_uri()])
    assert sideways <= 0
    assert (paper == "rgb(250, 248, 244)") == (scheme == "light")
    assert sides[0] == pytest.approx(sides[1], rel=0.05), "the two sides of the flow are equally high"
