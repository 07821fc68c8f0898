"""Canaries of every type in every position: escaped text, each part of a transcript, every file of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.assemble import ends_of
from backfill.config import Config, EngineConfig, ScanConfig
from backfill.pipeline import run_all
from backfill.privacy import Redactor
from backfill.privacy.spans import KINDS, find
from backfill.progress import Reporter
from backfill.sources import grown
from tests import fake_encoder
from tests.canaries import Canary, canaries
from tests.claude_lines import ClaudeFile, call, thought
from tests.conftest import ROOT

ALL = canaries()
WRAPPED: dict[str, Callable[[str], str]] = {
    "plain": lambda text: text,
    "json": json.dumps,
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "behind an escaped line break": lambda text: f"x\\n{text}\\ny",
    "python literal": repr,
    "coloured": lambda text: f"\x1b[32m{text}\x1b[0m",
    "among other scripts": lambda text: f"日本 é😀 {text} 日",
}


def leaks(canary: Canary, text: str) -> list[str]:
    return [piece for piece in canary.pieces() if piece in text]


def test_every_type_has_a_canary() -> None:
    assert {canary.kind for canary in ALL} == set(KINDS)


def test_every_type_is_documented() -> None:
    text = (ROOT / "docs" / "privacy.md").read_text()
    assert [kind for kind in {*KINDS, "email"} if f"`{kind}`" not in text and f"[secret:{kind}]" not in text] == []


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_nothing_of_a_secret_is_left(wrap: Callable[[str], str]) -> None:
    for canary in ALL:
        redactor = Redactor("secrets")
        text = wrap(canary.text)
        replaced = redactor.text(text)
        assert leaks(canary, replaced) == [], replaced
        assert redactor.suspects(text)
        assert f"[secret:{canary.kind}]" in replaced
        assert Redactor("secrets").text(replaced) == replaced


@pytest.mark.parametrize("canary", [c for c in ALL if c.kind != "private_key"], ids=lambda c: c.kind)
def test_the_type_is_named_and_counted_once(canary: Canary) -> None:
    redactor = Redactor("secrets")
    assert redactor.text(canary.text) == canary.text.replace(canary.secret, f"[secret:{canary.kind}]")
    assert redactor.counts == {canary.kind: 1}


@pytest.mark.parametrize("budget", [300, 999])
def test_a_cut_leaves_no_half(budget: int) -> None:
    """The beginning and the end of a result are cut at every tenth place around and inside the secret."""
    for canary in ALL:
        inside = canary.text.index(canary.secret)
        for shift in range(0, len(canary.secret) + 20, max(10, len(canary.secret) // 8)):
            before = max(0, budget * 2 // 3 - inside - shift)
            text = ("a word\n" * budget)[: before - 1] + "\n" + canary.text + "\n" + "a word\n" * budget * 2
            head, tail, cut = ends_of(text, budget, Redactor("secrets"))
            assert leaks(canary, head + tail) == [], (canary.kind, shift)
            after = max(0, budget // 3 - (len(canary.text) - inside) + shift)
            text = "a word\n" * budget * 2 + canary.text + ("\n" + "a word\n" * budget)[:after]
            head, tail, cut = ends_of(text, budget, Redactor("secrets"))
            assert leaks(canary, head + tail) == [], (canary.kind, shift)
            assert cut > 0


def test_a_cut_of_clean_text_keeps_both_ends_to_the_byte() -> None:
    text = "".join(f"line {n} of é output\n" for n in range(1000))
    head, tail, cut = ends_of(text, 3000, Redactor("secrets"))
    assert text.startswith(head)
    assert text.endswith(tail)
    assert (head[-1], tail[:5]) == ("\n", "line ")
    assert 1500 < len(head.encode()) <= 2000
    assert 750 < len(tail.encode()) <= 1000
    assert len(text.encode()) == len(head.encode()) + len(tail.encode()) + cut


def test_a_mask_is_not_cut_either() -> None:
    for shift in range(30):
        text = "x " * 90 + " " * shift + "ana.lopez@mail.example.org /home/analopez/shop " + "y " * 2000
        head, tail, _ = ends_of(text, 300, Redactor("mask"))
        assert "ana" not in head + tail


@settings(max_examples=200)
@given(
    st.text(alphabet=st.sampled_from("aZ9 :=/@-_.\n\"'\\İ😀[]{}"), max_size=60),
    st.sampled_from(ALL),
    st.text(max_size=20),
)
def test_spans_are_sorted_apart_and_inside(before: str, canary: Canary, after: str) -> None:
    text = before + canary.text + after
    found = find(text)
    ends = [0, *(end for _, end, _ in found)]
    assert all(last <= start < end <= len(text) for last, (start, end, _) in zip(ends, found, strict=False))


def test_hostile_text_takes_linear_time() -> None:
    """Each of these once cost, or would cost with an unbounded pattern, time that grows with the square."""
    for word in (
        "token=", "password:", "eyJ-", "eyJaaaaaaaaaaaaa.", "://a:", "-----BEGIN PRIVATE KEY-----\n", "sk-", "sk.eyJ",
        "-----END PRIVATE KEY-----\n", "cookie: ", "login a password ", "mysql ", "secret", "Private-Lines: 1\n",
        "authorization: bearer ", "discord ", "a.b@", "basic ",
    ):  # fmt: skip
        assert Redactor("mask").text(word * (60_000 // len(word)))
    for text in ("A" * 60_000 + "@", "cookie: " + "a=" * 30_000, "auth:" + "a" * 60_000):
        assert Redactor("mask").text(text)


def transcript() -> ClaudeFile:
    """Each canary in a session's every place."""
    file = ClaudeFile()
    for n, canary in enumerate(ALL):
        said = canary.text
        file.raw({"type": "summary", "summary": said, "leafUuid": f"u{n}"})
        file.raw({"type": "custom-title", "customTitle": said, "sessionId": file.session})
        branch = {"gitBranch": said, "cwd": f"/home/ana/{said}"}
        file.user(f"please look at what deploy number {n} printed, here it is: {said}", **branch)
        file.agent(thought(f"I see {said}"))
        file.agent(call("Bash", f"t{n}", command=f"run-it {said}", env={"quoted": json.dumps(said)}, args=["-v", said]))
        file.result(f"t{n}", ("a word\n" * 250 + said + "\n" + "b word\n" * 4000) if n % 2 else "c word\n" * 9 + said)
        file.agent(call("Write", f"w{n}", file_path=f"/home/ana/shop/notes-{n}.md", content=json.dumps({"t": said})))
        file.result(f"w{n}", "d word\n" * 4000 + said + "\n" + "e word\n" * 150)
        file.queue("enqueue", f"while you are at it: {said}")
        file.queue("remove")
        file.agent(f"I found this in the deploy's output and will rotate it at once: {said}")
    return file


def stored(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from stored(key)
            yield from stored(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from stored(item)
    elif isinstance(value, bytes):
        yield value.decode("latin-1")


def in_file(path: Path) -> str:
    if path.suffix == ".parquet":
        return "\n".join(stored(pq.read_table(path).to_pylist()))
    data = path.read_bytes()
    return (zstandard.decompress(data) if path.suffix == ".zst" else data).decode("latin-1")


def finished(tmp_path: Path, data: bytes, privacy: Literal["secrets", "mask"]) -> tuple[dict[str, Any], list[Path]]:
    """The record of a run over one transcript, and its files, those that let a later reading go on included."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "s.jsonl").write_bytes(data)
    run = tmp_path / "run"
    scan = ScanConfig(workers=1, privacy=privacy)
    settings = Config(sources=(str(source),), engine=EngineConfig(kind="extractive"), scan=scan)
    record = run_all(settings, run, run.parent, Reporter(quiet=True), lambda: False, ungated=False)
    files = [path for path in run.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".parquet", ".json"}
    return record, files


def test_no_file_of_a_run_holds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setattr(grown, "MIN_BYTES", 1)
    record, files = finished(tmp_path, transcript().data(), "secrets")
    assert record["scan"]["exchanges"] == len(ALL)
    assert set(record["scan"]["secrets"]) >= {canary.kind for canary in ALL}
    for path in files:
        text = in_file(path)
        assert [(c.kind, leaks(c, text)) for c in ALL if leaks(c, text)] == [], path


def test_no_file_of_a_masked_run_names_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fsync: None
) -> None:
    fake_encoder.install(monkeypatch, tmp_path)
    monkeypatch.setattr(grown, "MIN_BYTES", 1)
    names = ("ana.lopez@example.org", "/home/analopez", "C:\\Users\\analopez", "/Users/analopez")
    file = ClaudeFile(cwd="/home/analopez/shop")
    for n, name in enumerate(names):
        file.user(
            f"please write to {name}/notes about deploy number {n}, which failed last night",
            gitBranch=f"for/{names[0]}",
        )
        file.agent(thought(f"that is {name}"), call("Bash", f"t{n}", command=f"cat {name}/notes", to=[name]))
        file.result(f"t{n}", f"a line\n{name}/notes: {names[0]}\n" * 400)
        file.agent(f"The notes of {name} say that the deploy failed on a lock, and {names[0]} was told.")
    file.user(f"<command-name>/mail</command-name><command-args>{names[0]}</command-args>")
    record, files = finished(tmp_path, file.data(), "mask")
    assert record["scan"]["exchanges"] == len(names)
    assert any(path.suffix == ".zst" for path in files)
    for path in files:
        text = in_file(path)
        assert [name for name in ("analopez", "ana.lopez", "example.org") if name in text] == [], path
    rows = [row for path in files if path.name.startswith("exchanges-") for row in pq.read_table(path).to_pylist()]
    assert any("[secret:email]" in row["user_text"] for row in rows)
    assert any("~/notes" in row["user_text"] for row in rows)
