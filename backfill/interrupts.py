"""Ctrl-C and TERM: the first asks the run to drain and commit, the second ends it at once."""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType

# Slurm ends a step past its limit by two TERM in a row, and then gives it KillWait to drain; a person's second Ctrl-C
# may come as fast as it likes.
SAME_S = 2.0


class StopFlag:
    """Set by SIGINT, SIGTERM or SIGUSR1 while installed; calling it tells whether to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._first_at = 0.0

    def __call__(self) -> bool:
        return self._event.is_set()

    def install(self) -> StopFlag:
        """Takes the signals over; does nothing outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                signal.signal(number, self._caught)
        return self

    def _caught(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._event.is_set():
            if number == signal.SIGINT or now - self._first_at > SAME_S:
                raise KeyboardInterrupt
            return
        self._first_at = now
        self._event.set()
        print("stopping: finishing what is in flight (again to stop at once)", file=sys.stderr)
