"""Planted faults: what is planted, and that the checks find it without refusing what is faithful."""

from __future__ import annotations

import pytest

from bench.faults import GOAL_FALSE_ALARMS, GOAL_FOUND, score
from bench.gold import GoldPair
from bench.planted import plants

SOURCE = (
    "The nightly export fails with PermissionError since v16.2.1.\n"
    "I raised statement_timeout to 30 s in jobs/export.py."
)
TEXT = "The export failed with PermissionError, so statement_timeout was raised to 30 s in jobs/export.py."
PLANTED = {
    "changed digit": "raised to 3",
    "swapped path": "other/place.py",
    "made-up version": "version",
    "missing error": "So statement_timeout was raised",
    "denied fact": "was not raised",
    "filler": "jobs/export.py.",
    "filler, held out": "jobs/export.py.",
}


@pytest.mark.parametrize("plant", plants(["other/place.py"]), ids=lambda plant: plant.kind)
def test_a_plant_changes_the_text_in_its_way_and_always_alike(plant) -> None:  # type: ignore[no-untyped-def]
    faulty = plant.make(TEXT, SOURCE)
    assert faulty != TEXT
    assert faulty == plant.make(TEXT, SOURCE)
    assert faulty is not None
    if plant.kind == "made-up version":
        assert any(form in faulty for form in ("in version ", "with v", "(since "))
    else:
        assert PLANTED[plant.kind] in faulty or "shared/export.py" in faulty


def test_what_does_not_fit_is_not_planted() -> None:
    by_kind = {plant.kind: plant.make for plant in plants([])}
    plain = "Nothing of the export was kept"
    assert by_kind["changed digit"](plain, SOURCE) is None
    assert by_kind["swapped path"](plain, SOURCE) is None
    assert by_kind["missing error"](plain, SOURCE) is None
    assert by_kind["denied fact"](plain, SOURCE) is None


def test_faults_are_found_and_faithful_items_pass(gold: list[GoldPair]) -> None:
    scores = score(gold)
    assert scores.detection >= GOAL_FOUND
    assert scores.false_alarms <= GOAL_FALSE_ALARMS
    for (product, kind), one in scores.kinds.items():
        # Ten plants of a missing error: one alone is a tenth.
        least = GOAL_FOUND if one.planted >= 20 else 0.75
        assert one.found >= least * one.planted, (product, kind, one.missed)
