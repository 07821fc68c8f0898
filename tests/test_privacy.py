"""Secret replacement: what is found, what is left alone, what is counted. All secrets are made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.privacy import Redactor

GH = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA7bq9Xl3zJb4mV0s5\n" * 20 + "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("key AKIAIOSFODNN7ABCDEFG here", "key [secret:aws_key] here"),
        (f"export GH={GH}", "export GH=[secret:github_token]"),
        ("github_pat_11ABCDE0Y0abcdefghijklmnop", "[secret:github_token]"),
        ("glpat-Zx9Yw8Vu7Ts6Rq5Po4Nm", "[secret:gitlab_token]"),
        ("xoxb-123456789012-abcdefABCDEF", "[secret:slack_token]"),
        ("sk-ant-api03-Qw3rTy9UiOp1AsDfGhJk", "[secret:anthropic_key]"),
        ("sk-proj-abc123DEF456ghi789JKL012", "[secret:openai_key]"),
        ("AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "[secret:google_key]"),
        (f"cat id_rsa\n{KEY}\ndone", "cat id_rsa\n[secret:private_key]\ndone"),
        (KEY[:200], "[secret:private_key]"),
        (KEY[-180:], "[secret:private_key]"),
        (repr(KEY), "'[secret:private_key]'"),
        (
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
            "[secret:jwt]",
        ),
        ("postgres://app:hunter2@db:5432/shop", "postgres://app:[secret:url_password]@db:5432/shop"),
        ("Authorization: Bearer abcDEF123456ghiJKL789", "Authorization: Bearer [secret:bearer]"),
        ("DB_PASSWORD=tr0ub4dor3", "DB_PASSWORD=[secret:assignment]"),
        ('{"client_secret": "9f8e7d6c5b4a39281706fedc"}', '{"client_secret": "[secret:assignment]"}'),
        ("api_key: 'k3y9Zq8Xw7Vu6Ts5Rq4P'", "api_key: '[secret:assignment]'"),
    ],
)
def test_secrets_are_replaced(text: str, expected: str) -> None:
    redactor = Redactor("secrets")
    assert redactor.suspects(text)
    assert redactor.text(text) == expected
    assert redactor.counts == {expected.split("[secret:")[1].split("]")[0]: 1}


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 16384",
        "token = get_token(request)",
        "password: str = Field(...)",
        "the secret: patience, always",
        "const apiKey = process.env.API_KEY_2024_PROD",
        "tokens_in=1234567890123456",
        "secret_name: my-app-credentials",
        "https://example.com/a:b@c",
        "http://${USER}:${PASS}@host/",
        "https://example.com:8080/path@v2",
        'if "-----BEGIN PRIVATE KEY-----" in text: return',
        "class sk-something-with-words-only-here",
        "a commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "bearer authentication is required here",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    redactor = Redactor("secrets")
    assert redactor.text(text) == text
    assert not redactor.counts


def test_mask_hides_people_and_homes() -> None:
    redactor = Redactor("mask")
    text = r"ana.b@mail.example.org wrote /home/ana/shop/x.py and C:\Users\Ana\x and /Users/ana"
    assert redactor.text(text) == r"[secret:email] wrote ~/shop/x.py and ~\x and ~"
    assert Redactor("secrets").text(text) == text


def test_off_changes_nothing() -> None:
    redactor = Redactor("off")
    assert redactor.text(GH) == GH
    assert not redactor.suspects(GH)


def test_arguments_are_searched_with_their_names() -> None:
    redactor = Redactor("secrets")
    value = {"env": {"DB_PASSWORD": "tr0ub4dor3", "n": 1}, "args": [GH, None], GH: "x"}
    assert redactor.tree(value) == {
        "env": {"DB_PASSWORD": "[secret:assignment]", "n": 1},
        "args": ["[secret:github_token]", None],
        "[secret:github_token]": "x",
    }
    assert redactor.counts == {"assignment": 1, "github_token": 2}


@given(st.text(alphabet=st.sampled_from("aA1 :=/@-_.\n\"'İßpasswordtokensecret"), max_size=200))
def test_text_without_suspicion_is_never_changed(text: str) -> None:
    redactor = Redactor("secrets")
    if not redactor.suspects(text):
        assert redactor.text(text) == text


@given(st.text(max_size=60), st.text(max_size=60))
def test_a_token_is_found_wherever_it_stands(before: str, after: str) -> None:
    assert GH not in Redactor("secrets").text(f"{before} {GH} {after}")


def test_long_runs_take_linear_time() -> None:
    text = "token" + "A" * 300_000 + "=" + "b" * 300_000 + "://" + "c" * 300_000 + "PRIVATE KEY" + "eyJ" * 100_000
    assert Redactor("mask").text(text)
