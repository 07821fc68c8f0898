from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from backfill import turns
from backfill.errors import BundleChanged
from backfill.turns import taking_turns


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    return tmp_path / f"tmp-turn-{socket.gethostname()}"


def test_one_writer_at_a_time(tmp_path: Path, claim: Path) -> None:
    with taking_turns(tmp_path):
        assert claim.read_text().startswith(f"{os.getpid()} ")
        with pytest.raises(BundleChanged, match="another writer holds") as waited, taking_turns(tmp_path, wait_s=0.05):
            pass
        assert str(claim) in waited.value.hint
        assert claim.exists(), "the one that waited in vain took the turn away"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param(str(2**22 + 1), id="of an earlier version, dead"),
        pytest.param(f"{2**22 + 1} 77 abcdef01", id="dead"),
        pytest.param(f"{os.getpid()} 1 abcdef01", id="its id came again"),
        pytest.param(f"{2**70} 1 abcdef01", id="no id of a process"),
    ],
)
def test_the_turn_of_one_that_is_gone_is_taken(tmp_path: Path, claim: Path, holder: str) -> None:
    claim.write_text(holder)
    with taking_turns(tmp_path, wait_s=5):
        assert claim.read_text() != holder
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("holder", [f"{os.getpid()}", f"{os.getpid()} 0 abcdef01", "", "?"])
def test_a_turn_that_may_be_held_is_left(tmp_path: Path, claim: Path, holder: str) -> None:
    claim.write_text(holder)
    with pytest.raises(BundleChanged), taking_turns(tmp_path, wait_s=0.05):
        pass
    assert claim.read_text() == holder


def test_an_interruption_right_after_the_claim_gives_the_turn_back(tmp_path: Path, claim: Path) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", link)
        with pytest.raises(KeyboardInterrupt), taking_turns(tmp_path):
            pass
    assert not claim.exists()


def test_a_dead_turn_that_another_broke_first_stays_theirs(tmp_path: Path, claim: Path) -> None:
    claim.write_text("faster 1 x")
    turns._break(claim, f"{2**22 + 1} 77 abcdef01")
    assert claim.read_text() == "faster 1 x"
    assert [p.name for p in tmp_path.iterdir()] == [claim.name]
