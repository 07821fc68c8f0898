"""What an object leaves out or pads with, planted into an object that has it all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from exchanges import make_exchange

from backfill.extractive import extract
from backfill.fidelity.checks import HARD, check_object
from backfill.types import Finding, PalaceObject

EXCHANGE = make_exchange(
    "The nightly export dies with PermissionError. Please fix it in jobs/export.py.",
    "The role lost CONNECT in the upgrade. We decided to grant it in a migration rather than by hand. I raised"
    " statement_timeout from 5 to 30 s as well. All 40 tests pass.",
)
WHOLE = replace(
    extract(EXCHANGE, generation=0, fingerprint="f"),
    exchange_core="PermissionError of the nightly export: we decided to grant CONNECT in a migration and raised"
    " statement_timeout from 5 to 30 s.",
    tokens=40,
)


def with_core(core: str) -> PalaceObject:
    return replace(WHOLE, exchange_core=core, specific_context="", context_start=0, context_end=0, tokens=30)


def test_a_whole_object_has_no_findings() -> None:
    assert check_object(WHOLE, EXCHANGE) == ()


@pytest.mark.parametrize(
    ("core", "kind", "handle"),
    [
        ("Granted CONNECT in a migration; decided to grant it there.", "dropped", "PermissionError"),
        ("PermissionError: we decided to grant it in a migration, raised statement_timeout.", "dropped", "30"),
        (
            "PermissionError of the nightly export in jobs/export.py.",
            "dropped",
            "We decided to grant it in a migration",
        ),
        ("PermissionError was discussed in this exchange: granted in a migration.", "bloat", "in this exchange"),
    ],
)
def test_what_is_gone_or_padded_is_found(core: str, kind: str, handle: str) -> None:
    found = check_object(with_core(core), EXCHANGE)
    assert any(f.kind == kind and f.handle.startswith(handle) for f in found), found
    assert kind not in HARD


def test_more_words_than_the_exchange_has_is_bloat() -> None:
    short = make_exchange("rename the helper to parse_row please", "Done, renamed in rows.py.")
    core = "The helper was renamed to parse_row in rows.py, as asked, and is done: renamed to parse_row, please, done."
    made = replace(extract(short, generation=0, fingerprint="f"), exchange_core=core)
    assert "bloat" in {f.kind for f in check_object(made, short)}


@pytest.mark.parametrize(
    ("core", "kind"),
    [
        ("PermissionError: no error was found in the export of the role.", "absence"),
        ("The summary in the words and the language of the text: PermissionError.", "leak"),
        ("PermissionError with [secret:github_token] in the migration.", "secret"),
    ],
)
def test_what_refuses_an_object(core: str, kind: str) -> None:
    assert kind in {f.kind for f in check_object(with_core(core), EXCHANGE)}
    assert kind in HARD


def test_a_denial_that_the_exchange_makes_is_none() -> None:
    row = make_exchange("Does the retry work behind the proxy?", "The retry does not work behind the proxy yet.")
    made = replace(
        extract(row, generation=0, fingerprint="f"), exchange_core="The retry does not work behind the proxy."
    )
    assert Finding("absence", "not work behind the proxy", "exchange_core") not in check_object(made, row)


def test_a_loud_word_is_no_name_of_an_error() -> None:
    row = make_exchange(
        "The run ended and printed ERROR twice. What is it?", "The word ERROR comes from the old provider list."
    )
    made = replace(extract(row, generation=0, fingerprint="f"), exchange_core="It comes from the old provider list.")
    assert check_object(made, row) == ()


def test_words_that_the_exchange_has_are_no_filler() -> None:
    row = make_exchange(
        "Make an empty commit for this conversation please.", "Empty commit made for this conversation."
    )
    made = replace(
        extract(row, generation=0, fingerprint="f"), exchange_core="Empty commit made for this conversation."
    )
    assert check_object(made, row) == ()


@pytest.mark.parametrize(
    ("core", "dropped"),
    [
        ("Add lines.close() at the end of the loop, for the reader leaks file handles.", ["why does the indexer hang"]),
        ("The indexer hangs because the reader leaks file handles.", []),
        ("Hanging: the reader leaks file handles; lines.close() at the end of the loop.", []),
    ],
)
def test_a_cause_does_not_stand_for_the_trouble_that_was_asked_about(core: str, dropped: list[str]) -> None:
    row = make_exchange(
        "why does the indexer hang after an hour?", "The reader leaks file handles; add lines.close() at the end."
    )
    made = replace(extract(row, generation=0, fingerprint="f"), exchange_core=core, specific_context="",
                   context_start=0, context_end=0, tokens=20)  # fmt: skip
    assert [f.handle for f in check_object(made, row) if f.kind == "dropped"] == dropped
