"""Interrupts a scenario at its operations and compares what a second attempt makes of it: run by `test_crash`.

    python -m tests.crash.interrupt SCENARIO kill|cut|full [--every N]

`kill` ends a child with SIGKILL before each operation; `cut` lays out what a power cut would leave there, once with
everything lost that was not fsynced and once with names but not contents; `full` fails every operation from there on
that takes room, and a bundle that stood before must still verify. This process itself only forks, so that a
child starts in milliseconds. The last line is JSON: {scenario, mode, operations, tried, failures[]}.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from backfill.bundle_writer import MANIFEST
from tests.crash.operations import Recorder, Recording, lay_out
from tests.crash.scenarios import SCENARIOS, Scenario, problems, result, settle_in

T = TypeVar("T")


class Stage:
    """Folders of one scenario: `root` is where it acts, always the same path; `base` is what it starts from."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.root, self.base, self.outside = folder / "w", folder / "base", folder / "outside"
        self.answer = folder / "answer"

    def child(self, work: Callable[[], Any]) -> tuple[int, bytes]:
        """Exit status (negative: the signal), and as msgpack what `work` returned or, of an error, its traceback."""
        self.answer.unlink(missing_ok=True)
        pid = os.fork()
        if not pid:
            try:
                os.fsync = lambda descriptor: None
                settle_in(self.outside)
                status, answer = 0, work()
            except BaseException:  # the parent has to hear of everything
                status, answer = 1, traceback.format_exc()
            self.answer.write_bytes(msgspec.msgpack.encode(answer))
            os._exit(status)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return code, self.answer.read_bytes() if self.answer.exists() else msgspec.msgpack.encode(None)

    def fresh(self) -> None:
        """Puts the folder where it starts."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.base, self.root)

    def prepare(self) -> dict[str, str]:
        """Makes the start, acts undisturbed and returns the result that is wanted."""

        def ready() -> None:
            self.root.mkdir()
            self.scenario.ready(self.root)

        self.sure(ready, None)
        self.root.rename(self.base)
        self.fresh()
        return self.sure(self.finish, dict[str, str])

    def finish(self) -> dict[str, str]:
        """Acts, and returns the result; raises where it does not hold."""
        self.scenario.act(self.root)
        wrong = problems(self.root, self.scenario)
        if wrong:
            raise AssertionError("; ".join(wrong))
        return result(self.root, self.scenario)

    def recorded(self) -> Recording:
        """The operations of an undisturbed act, with what could be lost at each."""

        def work() -> Recording:
            recorder = Recorder(self.root, remember=True)
            recorder.install()
            self.scenario.act(self.root)
            return recorder.recording

        self.fresh()
        return self.sure(work, Recording)

    def sure(self, work: Callable[[], T], kind: type[T] | None) -> T:
        """What `work` returned in a child, undisturbed."""
        code, answer = self.child(work)
        if code:
            raise SystemExit(f"undisturbed, it failed ({code}):\n{msgspec.msgpack.decode(answer)}")
        value: T = msgspec.msgpack.decode(answer, type=kind)
        return value


def kills(stage: Stage, whats: list[str], every: int) -> Iterator[str]:
    """Names of the operations, with the folder as a kill before each left it."""
    for at in range(1, len(whats) + 1, every):
        stage.fresh()

        def act(at: int = at) -> None:
            Recorder(stage.root, kill_at=at).install()
            stage.scenario.act(stage.root)

        code, answer = stage.child(act)
        if code not in (-signal.SIGKILL, 0):
            raise SystemExit(f"the child was to be killed, not to fail ({code}):\n{msgspec.msgpack.decode(answer)}")
        yield f"{at} {whats[at - 1]}"


def fulls(stage: Stage, whats: list[str], every: int) -> Iterator[str]:
    """Names of the operations, with the folder as a disk that was full from each on left it."""
    for at in range(1, len(whats) + 1, every):
        stage.fresh()

        def act(at: int = at) -> None:
            Recorder(stage.root, full_at=at).install()
            stage.scenario.act(stage.root)

        code, answer = stage.child(act)
        told = msgspec.msgpack.decode(answer)
        # It may end well: what is only noted for later is done without.
        if code and os.strerror(errno.ENOSPC) not in told.rstrip().rsplit("\n", 1)[-1]:
            raise SystemExit(f"{at} {whats[at - 1]}: not an error that tells of the disk ({code}):\n{told}")
        if (stage.root / stage.scenario.bundle / MANIFEST).exists():
            stage.sure(lambda: _refuse(problems(stage.root, stage.scenario, bundle_only=True)), None)
        yield f"{at} {whats[at - 1]}"


def _refuse(wrong: list[str]) -> None:
    if wrong:
        raise AssertionError("; ".join(wrong))


def cuts(stage: Stage, recording: Recording, every: int) -> Iterator[str]:
    """Names of the operations, with the folder as a power cut before each could leave it; equal folders once."""
    tried: set[str] = set()
    for at, moment in list(enumerate(recording.moments, 1))[::every]:
        for names_survive in (False, True):
            shutil.rmtree(stage.root, ignore_errors=True)
            print_ = lay_out(moment, recording, stage.root, names_survive=names_survive)
            if print_ not in tried:
                tried.add(print_)
                yield f"{at} {moment.what} ({'names survive' if names_survive else 'all unsynced lost'})"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("mode", choices=("kill", "cut", "full"))
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    failures, tried = [], 0
    with tempfile.TemporaryDirectory(prefix="backfill-crash-") as folder:
        stage = Stage(SCENARIOS[args.scenario], Path(folder))
        wanted = stage.prepare()
        recording = stage.recorded()
        if args.mode == "cut":
            made = cuts(stage, recording, args.every)
        else:
            made = (kills if args.mode == "kill" else fulls)(stage, recording.whats, args.every)
        for name in made:
            tried += 1
            code, data = stage.child(stage.finish)
            answer = msgspec.msgpack.decode(data)
            if code:
                failures.append(f"{name}: {answer}")
            elif answer != wanted:
                differ = sorted(n for n in {*answer, *wanted} if answer.get(n) != wanted.get(n))
                failures.append(f"{name}: differs in {differ}")
    record = {"scenario": args.scenario, "mode": args.mode, "operations": len(recording.whats), "tried": tried}
    sys.stdout.write(json.dumps({**record, "failures": failures}) + "\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
