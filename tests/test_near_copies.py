"""Near copies of a scan: by the rule of folding, found by signatures, reported and never deleted."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill import folding
from backfill.cli import main
from backfill.errors import Interrupted
from backfill.near_copies import FILE_NAME, Sketch, band_keys, candidates, find, grouped, similarity, sketch
from backfill.rundir import RunDir
from tests.claude_lines import ClaudeFile

WORDS = ["the", "export", "of", "nightly", "tables", "failed", "because", "role", "was", "missing", "upgrade", "retry"]


def made_text(dice: random.Random, n_words: int) -> list[str]:
    return dice.choices(WORDS, k=n_words)


@st.composite
def two_texts(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and the same after a few edits: words replaced, left out or doubled, numbers and denials among them."""
    words = draw(st.lists(st.sampled_from([*WORDS, "not", "42", "v1.2", "doesn't", "!!"]), max_size=60))
    other = list(words)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(other)))
        other[at : at + draw(st.integers(0, 2))] = draw(st.lists(st.sampled_from([*WORDS, "42", "not"]), max_size=2))
    return " ".join(words), " ".join(other).upper() if draw(st.booleans()) else " ".join(other)


@settings(deadline=None, max_examples=200)
@given(two_texts(), st.integers(0, 40))
def test_two_texts_are_near_exactly_where_a_search_would_fold_them(texts: tuple[str, str], cut: int) -> None:
    one, other = (SimpleNamespace(user_text=text[:cut], agent_text=text[cut:]) for text in texts)
    wanted = folding._alike_in_size(one, other) and folding._are_near(one, other)
    found = similarity(*(sketch(hit.user_text, hit.agent_text) for hit in (one, other)))
    assert (found > 0) == wanted
    assert found == 0 or found >= folding.MIN_SHARED


def test_copies_with_a_word_changed_share_a_key_and_strangers_do_not() -> None:
    dice = random.Random(4)
    sketches: list[Sketch] = []
    for _ in range(200):
        words = made_text(dice, 60)
        copy = [*words]
        copy[dice.randrange(60)] = "changed"
        sketches += (sketch(" ".join(words), ""), sketch(" ".join(copy), ""))
    strangers = [sketch(" ".join(made_text(dice, 60)), "") for _ in range(400)]
    keys = band_keys(sketches + strangers)
    alike = [np.any(keys[2 * n] == keys[2 * n + 1]) for n in range(200)]
    # One word of sixty leaves 55 of 61 runs, a similarity of .90; .9999 of such pairs share a key.
    assert sum(alike) == 200
    assert candidates(keys)[400:].mean() < 0.05


def test_a_number_changed_is_no_candidate() -> None:
    base = " ".join(made_text(random.Random(5), 80))
    keys = band_keys([sketch(f"{base} port {port}", "") for port in (8080, 8081)])
    assert not candidates(keys).any()


def test_groups_hold_the_earliest_first_and_each_once() -> None:
    dice = random.Random(6)
    text = made_text(dice, 80)
    changed = [[*text[:at], "other", *text[at + 1 :]] for at in (10, 50)]
    stranger = made_text(dice, 80)
    sketches = [sketch(" ".join(words), "") for words in (text, stranger, *changed, text, stranger)]
    ids = [bytes([n]) * 16 for n in range(6)]
    (first, second) = grouped(ids, band_keys(sketches), sketches)
    assert (first.shown, [name for name, _ in first.copies]) == (ids[0], [ids[2], ids[3], ids[4]])
    assert first.copies[2][1] == 1.0
    assert 0.8 <= first.copies[0][1] < 1.0
    assert (second.shown, second.copies) == (ids[1], ((ids[5], 1.0),))


def test_thousands_of_equal_texts_take_no_time_and_texts_without_words_are_equal() -> None:
    sketches = [sketch("yes", "")] * 5000 + [sketch("!!!", "..."), sketch("???", "...")]
    ids = [n.to_bytes(16, "big") for n in range(len(sketches))]
    groups = grouped(ids, band_keys(sketches[:1]).repeat(5002, axis=0), sketches)
    assert [len(group.copies) for group in groups] == [4999, 1]


def test_nothing_has_no_candidates() -> None:
    assert candidates(np.empty((0, 21), np.uint64)).shape == (0,)
    assert grouped([], np.empty((0, 21), np.uint64), []) == []


LONG = " ".join(made_text(random.Random(8), 60))


def history(folder: Path, n_files: int = 3) -> None:
    """Sessions that ask the same but for one word, of two projects, and one that asks something else."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(n_files):
        file = ClaudeFile(session=f"6a0c1f52-0000-4000-8000-00000000000{n}", cwd=f"/home/ana/\x1b[31mshop{n}")
        file.user(f"word{'abc'[n % 3]} {LONG}")
        file.agent("I have looked and the role is missing indeed.")
        file.user(f"Now something else entirely about {['kites', 'boats', 'trains'][n % 3]} and the weather of May")
        file.agent("Fine.")
        (folder / f"{file.session}.jsonl").write_bytes(file.data())


def scanned(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    args = ["scan", str(tmp_path / "src"), "--out", str(tmp_path / "run"), "--json", *more]
    assert main(args) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    record: dict[str, Any] = json.loads(out)
    return record


def test_a_scan_reports_them_and_keeps_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_fsync: None
) -> None:
    history(tmp_path / "src")
    plain = scanned(tmp_path, capsys)
    assert "near_dup" not in plain
    record = scanned(tmp_path, capsys, "--near-dup")
    assert record["exchanges"] == plain["exchanges"] == 6
    found = record["near_dup"]
    assert (found["exchanges"], found["groups"], found["copies"], found["equal"]) == (6, 1, 2, 0)
    assert found["tokens"] > 100
    (line,) = Path(found["file"]).read_text().splitlines()
    assert json.loads(line) == found["largest"][0]
    shown, copies = found["largest"][0]["shown"], found["largest"][0]["copies"]
    assert len({shown["exchange_id"], *(copy["exchange_id"] for copy in copies)}) == 3
    assert all(0.8 <= copy["similarity"] < 1 for copy in copies)
    assert LONG not in line, "no text of a transcript is written out"
    assert scanned(tmp_path, capsys, "--near-dup")["near_dup"] == found, "the same again"


def test_people_get_a_table_without_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str], no_fsync: None) -> None:
    history(tmp_path / "src")
    assert main(["scan", str(tmp_path / "src"), "--out", str(tmp_path / "run"), "--near-dup"]) == 0
    out = capsys.readouterr().out
    assert "near copies: 2 of 6 exchanges (0 equal) in 1 groups" in out
    assert "nothing is deleted" in out
    assert "\x1b[31m" not in out


def test_an_earlier_reading_of_a_file_that_grew_is_no_copy_of_the_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_fsync: None
) -> None:
    history(tmp_path / "src", 1)
    (path,) = (tmp_path / "src").iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]))
    assert scanned(tmp_path, capsys, "--near-dup")["near_dup"]["copies"] == 0
    file = ClaudeFile(session="6a0c1f52-0000-4000-8000-000000000000")
    file.last, file.n = "u2", 2
    file.agent("So.")
    path.write_bytes(b"".join(lines[:2]) + file.data())
    record = scanned(tmp_path, capsys, "--near-dup")
    assert (record["near_dup"]["exchanges"], record["near_dup"]["copies"]) == (1, 0)


def test_a_gpu_that_is_not_there_is_bad_usage_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backfill.indexes.gpu_kmeans.is_there", lambda: False)
    history(tmp_path / "src")
    args = ["scan", str(tmp_path / "src"), "--out", str(tmp_path / "run"), "--near-dup", "--near-dup-device", "cuda"]
    assert main(args) == 2
    assert "torch sees no GPU" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_stop_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str], no_fsync: None) -> None:
    history(tmp_path / "src")
    scanned(tmp_path, capsys)
    run = RunDir(tmp_path / "run")
    with pytest.raises(Interrupted):
        find(run, run.plan(), lambda: True)
    assert not (tmp_path / "run" / FILE_NAME).exists()
