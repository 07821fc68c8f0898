"""One format's fixture for the contract suite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """`exchanges` are (user_text, agent_text) in file order; `appends` says that the agent only ever appends."""

    name: str
    agent: str
    data: bytes
    exchanges: tuple[tuple[str, str], ...]
    said: tuple[str, ...]
    unsaid: tuple[str, ...] = ()
    appends: bool = True
    source: str = "proj/session.jsonl"
