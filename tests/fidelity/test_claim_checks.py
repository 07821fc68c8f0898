"""What makes a text no claim, and which kind a claim is."""

from __future__ import annotations

import pytest

from backfill.fidelity.absence import absences
from backfill.fidelity.claim_checks import ClaimSource, claim_faults, claim_kind

SOURCE = (
    "The nightly export fails with PermissionError since Postgres 16.2.\n"
    "The role `export` lost CONNECT on billing; I granted it and raised statement_timeout from 5 s to 30 s."
    " The import was not changed. There is no index on invoices.month."
)


@pytest.mark.parametrize(
    "text",
    [
        "The nightly export failed with PermissionError after the upgrade to Postgres 16.2.",
        "statement_timeout was raised from 5 s to 30 s for the role `export`.",
        "The import was not changed when the export was fixed.",
        "invoices.month has no index, which slows the nightly export.",
    ],
)
def test_a_claim_that_its_source_holds_has_no_fault(text: str) -> None:
    assert claim_faults(text, ClaimSource.of(SOURCE)) == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("It fails with PermissionError since the upgrade.", "dangling"),
        ("This was fixed by granting CONNECT on billing.", "dangling"),
        ("But they lost CONNECT on the billing database.", "dangling"),
        ("The above was granted again on billing.", "dangling"),
        ("Thanks, the export works again now.", "greeting"),
        ("Let me look at the export and its role.", "mechanics"),
        ("The agent ran the export and read the log.", "mechanics"),
        ("Reading the file with the grants of the role.", "mechanics"),
        ("The user asked for the nightly export to be fixed.", "mechanics"),
        ("Why does the nightly export fail since Postgres 16.2?", "question"),
        ("The export fails.", "short"),
        ("The nightly export fails " + "again and again " * 20, "bloat"),
        ("The nightly export failed with TimeoutError on billing.", "invented"),
        ("statement_timeouts was raised to 30 s for the export.", "mangled"),
        ("The nightly export does not write a log file.", "absence"),
        ("The cause of the failing export was not mentioned.", "absence"),
    ],
)
def test_faults_are_named(text: str, kind: str) -> None:
    assert kind in {finding.kind for finding in claim_faults(text, ClaimSource.of(SOURCE))}


def test_a_pronoun_with_its_name_before_it_does_not_dangle() -> None:
    assert claim_faults("statement_timeout: it was raised from 5 s to 30 s.", ClaimSource.of(SOURCE)) == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("We decided to keep the lock table instead of Redis.", "decision"),
        ("statement_timeout was raised from 5 s to 30 s.", "config"),
        ("POOL_SIZE=40 is what the worker takes.", "config"),
        ("The nightly export fails with PermissionError.", "incident"),
        ("To restore a dump, run `pg_restore -d billing`.", "howto"),
        ("Caroline prefers tea in the evening.", "preference"),
        ("Implemented the retry of lost uploads.", "status"),
        ("Invoices are numbered by year and branch.", "fact"),
    ],
)
def test_kinds_follow_words(text: str, kind: str) -> None:
    assert claim_kind(text) == kind


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The tests do not pass on Windows.", ["not pass on Windows"]),
        ("No errors were reported.", ["No errors were reported"]),
        ("The export ran without a timeout.", ["without a timeout"]),
        ("The import was not changed.", []),
        ("Invoices lack an index: there is no index on the month.", []),
        ("The role export lost CONNECT.", []),
        ("No reason is given in the transcript.", ["No reason is given in the transcript"]),
    ],
)
def test_denials_that_the_source_does_not_make(text: str, found: list[str]) -> None:
    assert absences(text, SOURCE) == found
