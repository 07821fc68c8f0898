"""A stand-in for the engine process: real pipes and frames, scripted answers, and deaths on demand.

A prompt that contains POISON kills the process, HANG stops it, LONG is refused, SLOW is answered last of all. The
model directory named `broken` does not load; `mute` never says that it is ready. Prints go to standard output on
purpose: they must not reach the pipe.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from backfill.engines.child_pipe import leave_signals_to_parent, own_pipe
from backfill.engines.frames import Ask, Done, Ready, Refused, Start
from backfill.engines.scripted import script


def main() -> None:
    """Answers until its input ends."""
    leave_signals_to_parent()
    pipe = own_pipe()
    start = pipe.receive()
    print("a line that no frame may hold", flush=True)
    assert isinstance(start, Start)
    if Path(start.model).name == "broken":
        pipe.send(Refused("model", "no tokenizer in it"))
        pipe.drain()
        return
    if Path(start.model).name == "mute":
        time.sleep(60)
    pipe.send(Ready("cpu", "float32", start.structured_backend, {"child": "1"}, 0.1))
    late: list[Done] = []
    while isinstance(message := pipe.receive(), Ask):
        late.append(answer(message))
        if len(late) >= 3 or "LAST" not in message.user:
            for done in late:
                pipe.send(done)
            late.clear()
    pipe.drain()


def answer(ask: Ask) -> Done:
    """A scripted answer, or what the prompt asks for."""
    if "POISON" in ask.user:
        print("about to die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if "HANG" in ask.user:
        time.sleep(60)
    if "LONG" in ask.user:
        return Done(ask.key, "", "error", error="too long")
    return Done(ask.key, script(ask.user, random.Random(ask.user)), "stop", tokens_in=5, tokens_out=7, tokens_cached=2)


if __name__ == "__main__":
    main()
