"""The first signal asks, the second ends; a system's two in a row are one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from backfill import interrupts
from backfill.interrupts import StopFlag

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@pytest.fixture
def stop() -> Iterator[StopFlag]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield StopFlag().install()
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_the_first_asks_and_the_second_ends(
    stop: StopFlag, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interrupts, "SAME_S", -1.0)
    assert not stop()
    os.kill(os.getpid(), number)
    assert stop()
    assert "finishing what is in flight" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_two_in_a_row_from_the_system_are_one(stop: StopFlag, number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
    time.sleep(0.01)
    assert stop()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
