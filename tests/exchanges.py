"""Exchanges written by us, for the tests of the distill stage."""

from __future__ import annotations

from backfill.ids import args_digest, content_id, exchange_id
from backfill.text import tokens_est
from backfill.types import Exchange, ToolCall

TOPICS = (
    ("retry", "the client gives up after 5 s", "raised RETRY_TIMEOUT_S from 5 to 30 in src/net/client.py", "net"),
    ("cache", "the cache of search results never expires", "set CACHE_TTL_S to 900 in src/search/cache.py", "search"),
    ("export", "the nightly export misses the last row", "changed the bound in jobs/export.py to include it", "jobs"),
    ("login", "login fails behind the proxy", "trusted the header X-Forwarded-Proto in web/auth.py", "web"),
    ("deploy", "the deploy hangs at the migration step", "added lock_timeout = 5000 to deploy/migrate.sql", "deploy"),
)


def make_exchange(
    user_text: str, agent_text: str = "", tools: tuple[ToolCall, ...] = (), *, prev: bytes | None = None, part: int = 0
) -> Exchange:
    """An exchange row with true ids and token counts."""
    content = content_id(user_text, agent_text, part, tools)
    tokens = tokens_est(user_text, agent_text)
    return Exchange(exchange_id(content, prev), content, prev, user_text, agent_text, part, 2, tokens, "", tools)


def make_tool(
    name: str = "Bash", asked: str = "pytest -q", head: str = "", tail: str = "", cut_bytes: int = 0
) -> ToolCall:
    """A tool call that names no file."""
    return ToolCall(name, args_digest({"command": asked}), (), (), asked, head, tail, cut_bytes)


def exchange(number: int) -> Exchange:
    """One of a series of different exchanges of about 60 tokens, each with one tool call."""
    name, problem, remedy, folder = TOPICS[number % len(TOPICS)]
    user = f"Case {number}: {problem}, please find out why in the {folder} folder and mend it."
    agent = f"I {remedy} for case {number}. The {name} tests pass now, all {40 + number} of them."
    return make_exchange(user, agent, (make_tool(head=f"{40 + number} passed in {number}.2s"),))


def exchanges(n: int) -> list[Exchange]:
    """The first `n` of the series."""
    return [exchange(i) for i in range(n)]
