"""Asks an engine every prompt once: answers that can be read are kept in a log, by a key of what was asked.

Transcripts stand in prompts as quoted data, between marks that they do not hold. Deliberately absent: a retry that
says what was wrong; an answer that cannot be read is asked for once more, then left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from backfill.engines.base import Answer, Engine, Request
from backfill.errors import EngineError

T = TypeVar("T")
_MAX_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is asked: as in a Request."""

    system: str
    user: str
    schema: str
    max_tokens: int


def key_of(*texts: str) -> str:
    """Hash of the texts in their order: equal texts are asked about once."""
    digest = hashlib.blake2b(digest_size=16)
    for text in texts:
        data = text.encode("utf-8", "replace")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def quoted(*texts: str) -> tuple[str, ...]:
    """Each text between lines of a mark that none of them holds."""
    mark = "~" * 8
    while any(mark in text for text in texts):
        mark += "~"
    return tuple(f"{mark}\n{text}\n{mark}" for text in texts)


def ask_once(
    engine: Engine,
    prompts: Mapping[str, Prompt],
    log: Path,
    parse: Callable[[str], T | None],
    on_done: Callable[[int], None] = lambda n: None,
) -> dict[str, T]:
    """What the engine answers to each prompt, by key; what the log has is not asked again.

    A prompt that got no answer that parses, in two tries, is left out. Raises EngineError when the engine dies.
    """
    known = {key: value for key, text in _read_log(log) if (value := parse(text)) is not None}
    missing = [key for key in prompts if key not in known]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        for _ in range(_MAX_ATTEMPTS):
            for key, answer in _asked(engine, {key: prompts[key] for key in missing}):
                whole = not answer.error and answer.finish_reason != "length"
                value = parse(answer.text) if whole else None
                if value is not None:
                    known[key] = value
                    file.write(json.dumps({"key": key, "answer": answer.text}) + "\n")
                    on_done(1)
            file.flush()
            missing = [key for key in missing if key not in known]
    return {key: known[key] for key in prompts if key in known}


def _asked(engine: Engine, prompts: Mapping[str, Prompt]) -> Iterator[tuple[str, Answer]]:
    todo = list(enumerate(prompts))[::-1]
    waiting: dict[int, str] = {}
    while todo or waiting:
        while todo and len(waiting) < engine.window:
            number, key = todo.pop()
            waiting[number] = key
            prompt = prompts[key]
            engine.submit(Request(number, prompt.system, prompt.user, prompt.schema, prompt.max_tokens))
        answers = engine.poll(60.0)
        if not answers and not waiting:
            raise EngineError("the engine gave no answer")
        for answer in answers:
            yield waiting.pop(answer.key), answer


def _read_log(path: Path) -> Iterator[tuple[str, str]]:
    """Keys and answers; a torn last line is passed over."""
    if not path.is_file():
        return
    # By line breaks alone: an answer may hold other characters that some take for one.
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            row = json.loads(line)
            yield str(row["key"]), str(row["answer"])
        except (ValueError, KeyError, TypeError):
            continue
