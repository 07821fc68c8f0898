"""Checks of objects against their exchanges: one hand-written source, known right and wrong objects."""

from dataclasses import replace

import pytest

from backfill.extractive import extract
from backfill.fidelity.checks import check_object
from backfill.types import Exchange, Finding, ToolCall

EXCHANGE = Exchange(
    b"e" * 16,
    b"c" * 16,
    None,
    "Uploads to api.internal:8080 fail with HTTP 502. Can you look at src/upload.py?",
    "Root cause: `retry_timeout` was 30 s. I raised it to 45 s in `UploadClient` and set max_retries=5."
    ' Log: "no upstream".',
    0,
    2,
    60,
    "",
    (ToolCall("Bash", b"", ("src/upload.py",), ("read",), "sed -n 1,20p src/upload.py", "1,240 rows in 3f2a9bc"),),
)
OBJECT = extract(EXCHANGE, generation=0, fingerprint="f")
# Its context keeps the error, so that no core below drops it.
KEEPS_ERROR = replace(
    OBJECT, specific_context="fail with HTTP 502", context_field="user_text", context_start=29, context_end=47
)


def test_an_extractive_object_has_no_findings() -> None:
    assert check_object(OBJECT, EXCHANGE) == ()


@pytest.mark.parametrize(
    "core",
    [
        "Raised retry_timeout from 30 s to 45s in src/upload.py.",
        "Raised retry_timeout to 45 seconds because uploads failed with status 502.",
        "Set max_retries = 5 in UploadClient for api.internal:8080.",
        'The log said "No  upstream"; 1240 rows in 3f2a9bc were read from ./src/upload.py.',
        "Raised UploadClient.retry_timeout to 45 s.",
        "Uploads were fixed.",
    ],
)
def test_what_the_exchange_holds_is_supported(core: str) -> None:
    assert check_object(replace(KEEPS_ERROR, exchange_core=core), EXCHANGE) == ()


@pytest.mark.parametrize(
    ("core", "kind", "handle"),
    [
        ("Raised retry_timeouts to 45 s.", "mangled", "retry_timeouts"),
        ("Changed uploadClient.", "mangled", "uploadClient"),
        ("Raised it to 54 s.", "mangled", "54 s"),
        ("Raised it to 45 ms.", "mangled", "45 ms"),
        ("Edited src/uploads.py.", "mangled", "src/uploads.py"),
        ("Fixed in 3f2a9bd.", "mangled", "3f2a9bd"),
        ("Raised it to 900 s.", "invented", "900 s"),
        ("Used circuit_breaker for it.", "invented", "circuit_breaker"),
        ("Caught a KeyError there.", "invented", "KeyError"),
        ("Edited lib/cart/total.rb.", "invented", "lib/cart/total.rb"),
        ('It printed "disk is full".', "invented", "disk is full"),
        ("There were 240 rows.", "mangled", "240 rows"),
    ],
)
def test_what_it_does_not_hold_is_found(core: str, kind: str, handle: str) -> None:
    assert check_object(replace(OBJECT, exchange_core=core), EXCHANGE) == (Finding(kind, handle, "exchange_core"),)


@pytest.mark.parametrize(
    "change",
    [
        {"context_start": OBJECT.context_start + 1},
        {"context_end": 10_000},
        {"context_field": "tools.4.head"},
        {"context_field": "thinking"},
        {"context_start": -1},
    ],
)
def test_a_context_must_be_the_slice_it_claims(change: dict[str, object]) -> None:
    findings = check_object(replace(OBJECT, **change), EXCHANGE)  # type: ignore[arg-type]
    assert [finding.kind for finding in findings] == ["context_mismatch"]
