from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from backfill import visibility as vis
from backfill.ids import content_id, exchange_id, row_hash
from backfill.types import Exchange, Occurrence, PalaceObject, RoomAssignment, ToolCall
from tests.random_rows import row_sets


def _exchange(agent: str = "done", output: str = "") -> Exchange:
    tools = (ToolCall("Bash", b"d" * 16, head=output),)
    content = content_id("go", agent, 0, tools)
    return Exchange(exchange_id(content, None), content, None, "go", agent, 0, 2, 2, "", tools)


PLACE = Occurrence(
    "claude_code", "s", "u1", 0, 1, True, 3, b"x" * 16, "a.jsonl", 0, 90, "", "p", "", "", "", "", 1, 2, False
)


def _object(row: Exchange, tier: str = "extractive", fingerprint: str = "f", generation: int = 0) -> PalaceObject:
    return PalaceObject(
        row.exchange_id, "Went.", "", "user_text", 0, 0, (RoomAssignment("concept", "go_on", "go on", 1.0),), (),
        tier, generation, fingerprint, 2, (), row_hash(row),
    )  # fmt: skip


def test_the_newest_reading_of_a_place_shows() -> None:
    grown = replace(PLACE, n_records=5, exchange_id=b"y" * 16)
    assert vis.visible_occurrences([grown, PLACE]) == [grown]


def test_a_better_reader_hides_what_it_read_again() -> None:
    split = replace(PLACE, anchor="u0", scan_version=2, byte_end=120)
    assert vis.visible_occurrences([PLACE, split]) == [split]


def test_a_better_reader_leaves_what_it_has_not_reached() -> None:
    early = replace(PLACE, anchor="u0", scan_version=2, byte_end=80)
    assert set(vis.visible_occurrences([PLACE, early])) == {PLACE, early}


def test_a_better_reader_of_another_file_hides_nothing() -> None:
    other = replace(PLACE, anchor="u0", scan_version=2, byte_end=120, source="b.jsonl")
    assert set(vis.visible_occurrences([PLACE, other])) == {PLACE, other}


def test_the_fuller_row_of_an_exchange_shows() -> None:
    bare, full = _exchange(), _exchange(output="exit 0")
    assert bare.exchange_id == full.exchange_id
    place = replace(PLACE, exchange_id=bare.exchange_id)
    assert vis.visible_exchanges([bare, full], [place], set()) == {bare.exchange_id: full}


def test_what_no_visible_place_names_is_hidden() -> None:
    row = _exchange()
    assert vis.visible_exchanges([row], [PLACE], set()) == {}


def test_a_forgotten_exchange_is_hidden() -> None:
    row = _exchange()
    place = replace(PLACE, exchange_id=row.exchange_id)
    assert vis.visible_exchanges([row], [place], {row.exchange_id}) == {}


def test_tier_comes_before_generation_and_generation_before_fingerprint() -> None:
    row = _exchange()
    shown = {row.exchange_id: row}
    raw, new, old = _object(row, "raw", "z", 9), _object(row, "extractive", "a", 1), _object(row, "extractive", "z", 0)
    assert vis.visible_objects([raw, old, new], shown)[row.exchange_id] == new
    llm = _object(row, "llm", "a", 0)
    assert vis.visible_objects([raw, old, new, llm], shown)[row.exchange_id] == llm


def test_the_object_made_from_the_shown_row_goes_first() -> None:
    bare, full = _exchange(), _exchange(output="exit 0")
    for visible in (bare, full):
        shown = {visible.exchange_id: visible}
        assert vis.visible_objects([_object(bare), _object(full)], shown)[visible.exchange_id] == _object(visible)


@settings(max_examples=60, deadline=None)
@given(row_sets(), st.randoms(use_true_random=False))
def test_visibility_does_not_depend_on_order_or_repetition(sets: dict[str, list], random: object) -> None:
    def view(rows: dict[str, list]) -> tuple[object, ...]:
        places = vis.visible_occurrences(rows["occurrences"])
        shown = vis.visible_exchanges(rows["exchanges"], places, {t.exchange_id for t in rows["tombstones"]})
        return set(places), shown, vis.visible_objects(rows["objects"], shown)

    shuffled = {name: rows + rows[:2] for name, rows in sets.items()}
    for rows in shuffled.values():
        random.shuffle(rows)  # type: ignore[attr-defined]
    assert view(sets) == view(shuffled)
