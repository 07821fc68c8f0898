"""The scripted engine: a valid answer made from the prompt's own words, at once and without a model.

A first-class engine for tests, launchers and dry runs. An answer, a failure and a garbled text are functions of the
prompt alone, so results never depend on order, window or process; the order in which answers come back is shuffled
all the same, for real engines answer out of order.
"""

from __future__ import annotations

import hashlib
import random
import re
import time
from typing import Any

import msgspec

from backfill.config import EngineConfig
from backfill.engines.base import Answer, Request
from backfill.text import sentence_spans, tokens_est
from backfill.types import CLAIM_KINDS

SCRIPTED_VERSION = 2
_FENCE = re.compile(r"^(~{4,})$(.*?)^\1$", re.MULTILINE | re.DOTALL)
_LISTED = re.compile(r"^(\d+)\. ", re.MULTILINE)
_NUMBERED = re.compile(r"^\[(\d{1,2})\](?: \d{4}-\d{2}-\d{2})?$", re.MULTILINE)
_WORD = re.compile(r"[a-z]{4,12}")
_THREE_WORDS = re.compile(r"\w\W+\w+\W+\w")
_LABEL = re.compile(r"^(?:(?:USER|AGENT|OUTPUT):$|TOOL (?:\d+ )?\S*: |\[\.\.\. )")


class ScriptedEngine:
    """Answers from the prompt. Rates are shares of prompts, chosen by their hash, that fail, come garbled, or hold what
    the source does not: a made-up name, a mangled one, an access token."""

    deterministic = True

    def __init__(self, config: EngineConfig) -> None:
        self.window = config.window or 32
        self._fail_rate = config.fail_rate
        self._garbage_rate = config.garbage_rate
        self._faults = {"invent": config.invent_rate, "mangle": config.mangle_rate, "leak": config.leak_rate}
        self._delay_s = config.delay_ms / 1000
        self._held: list[tuple[float, Answer]] = []
        self._order = random.Random(config.seed)
        self._closed = False

    def identity(self) -> dict[str, Any]:
        """The script's version and its rates, which decide answers."""
        return {
            "engine": "scripted",
            "version": SCRIPTED_VERSION,
            "fail_rate": self._fail_rate,
            "garbage_rate": self._garbage_rate,
            **{name: rate for name, rate in self._faults.items() if rate},
        }

    def record(self) -> dict[str, Any]:
        """Its name: nothing else runs."""
        return {"engine": "scripted", "window": self.window}

    def submit(self, request: Request) -> None:
        """Makes the answer and holds it back."""
        self._held.append((time.monotonic() + self._delay_s, self._answer(request)))

    def poll(self, timeout_s: float) -> list[Answer]:
        """Some of the answers that are due, in a shuffled order; at least one if one becomes due in time."""
        if not self._held:
            return []
        wait_s = min(due for due, _ in self._held) - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, timeout_s))
        now = time.monotonic()
        due = [i for i, (at, _) in enumerate(self._held) if at <= now]
        taken = set(self._order.sample(due, self._order.randint(1, len(due)))) if due else set()
        answers = [self._held[i][1] for i in taken]
        self._order.shuffle(answers)
        self._held = [item for i, item in enumerate(self._held) if i not in taken]
        return answers

    def close(self) -> None:
        """Forgets what was not polled."""
        self._held.clear()

    def _answer(self, request: Request) -> Answer:
        prompt = request.system + "\n" + request.user
        dice = random.Random(hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=8).digest())
        tokens_in = tokens_est(prompt)
        if dice.random() < self._fail_rate:
            return Answer(request.key, "", "error", error="scripted failure", tokens_in=tokens_in)
        text = self._spoilt(script(request.user, dice), dice)
        if dice.random() < self._garbage_rate:
            text = text[: dice.randint(1, len(text) - 1)]
        return Answer(request.key, text, "stop", tokens_in=tokens_in, tokens_out=tokens_est(text))

    def _spoilt(self, text: str, dice: random.Random) -> str:
        """The answer with what it was told to get wrong; no dice are thrown for a rate of 0."""
        told = [name for name, rate in self._faults.items() if rate and dice.random() < rate]
        if not told:
            return text
        tree: dict[str, Any] = msgspec.json.decode(text)
        owner, key = (tree, "c") if isinstance(tree["c"], str) else (next(iter(tree["c"]), {}), "t")
        said = str(owner.get(key, ""))
        for name in told:
            said = _FAULTS[name](said.rstrip(".!? "), dice)
        owner[key] = said
        return msgspec.json.encode(tree).decode()


def _invent(said: str, dice: random.Random) -> str:
    return f"{said} with quantum_lattice_{dice.randint(100, 999)}."


def _mangle(said: str, dice: random.Random) -> str:
    """A name or number one letter off; a sentence without one gets a word joined to the next."""
    names = re.findall(r"\w*[_\d]\w*\w", said)
    if names:
        name = dice.choice(names)
        last = "7" if name[-1] != "7" else "4"
        return said.replace(name, name[:-1] + last) + "."
    words = said.split()
    longest = max(range(len(words)), key=lambda i: len(words[i]), default=0)
    joined = "".join(words[longest : longest + 2]).replace(".", "") + "_x"
    return " ".join([*words[:longest], joined, *words[longest + 2 :]]) + "."


def _leak(said: str, dice: random.Random) -> str:
    """What looks like an access token, put together here so that none stands in this file."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return f"{said} " + "gh" + "p_" + "".join(dice.choice(letters) for _ in range(36)) + "."


_FAULTS = {"invent": _invent, "mangle": _mangle, "leak": _leak}


def script(user: str, dice: random.Random) -> str:
    """A wire text from the sentences, words and candidate numbers of a distillation prompt."""
    fenced = _FENCE.search(user)
    body = fenced[2] if fenced else user
    if user.startswith("backfill-claims/"):
        return _script_claims(body, dice)
    listing = user[: fenced.start()] if fenced else ""
    lines = [body[a:b] for a, b in sentence_spans(body)]
    lines = [line for line in lines if not _LABEL.match(line) and _THREE_WORDS.search(line)]
    core = " ".join(dice.choice(lines).split()[:20]) if lines else "Nothing was said here"
    words = sorted(set(_WORD.findall(core.lower()))) or ["quiet", "talk"]
    picked = dice.sample(words, min(2, len(words)))
    key = "_".join(picked if len(picked) > 1 else [*picked, "note"])
    numbers = [int(n) for n in _LISTED.findall(listing)]
    number = dice.choice([0, *numbers])
    # A prompt that says nothing of candidates wants the detail written out.
    x = number if "\nCandidates" in listing else " ".join(core.split()[:6])
    wire = {"c": core, "x": x, "r": [f"concept:{key}"]}
    return msgspec.json.encode(wire).decode()


def _script_claims(body: str, dice: random.Random) -> str:
    """A claims wire text: up to two sentences of each numbered exchange of the window, word for word."""
    claims = []
    pieces = _NUMBERED.split(body)
    for number, said in zip(pieces[1::2], pieces[2::2], strict=True):
        lines = [" ".join(said[a:b].split()[:20]) for a, b in sentence_spans(said) if not _LABEL.match(said[a:b])]
        lines = [line for line in lines if len(line.split()) >= 6]
        for line in dice.sample(lines, min(len(lines), dice.randint(1, 2))):
            claims.append({"t": line, "k": dice.choice(CLAIM_KINDS), "e": [int(number)]})  # noqa: PERF401
    return msgspec.json.encode({"c": claims}).decode()
