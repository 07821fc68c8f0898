"""Replies of a chat completion server, and how long to wait before asking again."""

from __future__ import annotations

import email.utils
import math
import random
import time

import msgspec

from backfill.engines.base import Answer

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
# A server may ask for more, but a run should not sleep for an hour because of one header.
MAX_RETRY_AFTER_S = 300.0


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _Details | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


def answer_of(key: int, data: bytes) -> Answer:
    """The answer in a reply's body; an error where there is none."""
    try:
        reply = msgspec.json.decode(data, type=_Completion)
        choice = reply.choices[0]
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        return Answer(key, "", "error", error=f"the reply is no chat completion ({error})")
    usage = reply.usage or _Usage()
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
    known = choice.finish_reason in ("stop", "length")
    return Answer(
        key,
        choice.message.content or "",
        str(choice.finish_reason) if known else "error",
        "" if known else f"ended by {choice.finish_reason}",
        usage.prompt_tokens,
        usage.completion_tokens,
        cached or 0,
    )


def pause(tries: int, after_s: float | None) -> float:
    """Seconds to wait after try number `tries`: the server's wish and a little more, or up to twice as long each time.

    Full jitter spreads the clients of one server (Brooker, "Exponential Backoff And Jitter", AWS, 2015).
    """
    if after_s is not None:
        return min(after_s, MAX_RETRY_AFTER_S) + random.uniform(0, FIRST_PAUSE_S)
    return random.uniform(FIRST_PAUSE_S / 2, min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**tries))


def retry_after_s(value: str) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date; None where it says neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
