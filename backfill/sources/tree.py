"""Messages that form a tree, as chat exports keep them: every path from a root to a leaf counts.

Gives the messages of one conversation as records in path order: the shared head once, then each branch. Where a person
edited a prompt, the branch begins with its own prompt; where an answer forks, the fork's first record carries the
prompt and the head of the answer again, so that each path reads whole, and its id is the anchor. Deliberately absent:
which branch was shown last; all of them were said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, ToolUse
from backfill.sources.typed import merge_prompts


@dataclass(slots=True)
class Node:
    """One message. `parent` is the id of another message or empty; `record` has its bytes, acts and time."""

    id: str
    parent: str
    record: Record
    children: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Path:
    """The exchange that a path is in: its acts so far, the message before its prompt, whether the agent spoke."""

    acts: list[Act]
    before: str | None = None
    answered: bool = False


def walk(nodes: Sequence[Node]) -> Iterator[Record]:
    """The nodes' records, each once, in path order; children in the order of the nodes.

    Parents that are missing, or that close a circle, make a root. Records get `uuid`, links, `forks` and `scattered`.
    """
    roots = _link(nodes)
    seen: set[int] = set()
    stack = [(root, _Path([]), n > 0) for n, root in reversed(list(enumerate(roots)))]
    while stack:
        index, path, forked = stack.pop()
        if index in seen:
            continue
        seen.add(index)
        node = nodes[index]
        record = node.record
        record.uuid, record.linked, record.parent = node.id, True, node.parent or None
        record.scattered = True
        path, forked = _step(record, path, forked)
        yield record
        stack += [(child, path, forked or n > 0) for n, child in reversed(list(enumerate(node.children)))]


def name_apart(nodes: Sequence[Node], session: str, owners: dict[str, str]) -> None:
    """Prefixes ids that another conversation of the file has used: small exports number their messages anew."""
    if all(owners.setdefault(node.id, session) == session for node in nodes):
        return
    for node in nodes:
        node.id = f"{session}:{node.id}"
        node.parent = node.parent and f"{session}:{node.parent}"


def _link(nodes: Sequence[Node]) -> list[int]:
    """Fills in children; gives the roots, with one for each circle."""
    by_id = {node.id: i for i, node in enumerate(nodes)}
    roots: list[int] = []
    for i, node in enumerate(nodes):
        parent = by_id.get(node.parent) if node.parent else None
        if parent is None or parent == i:
            roots.append(i)
        else:
            nodes[parent].children.append(i)
    reached = set(roots)
    todo = list(roots)
    while todo:
        fresh = [child for child in nodes[todo.pop()].children if child not in reached]
        reached.update(fresh)
        todo += fresh
    return roots + [i for i in range(len(nodes)) if i not in reached]


def _step(record: Record, path: _Path, forked: bool) -> tuple[_Path, bool]:
    """(the path with the record on it, whether the fork still waits for a record that says something)."""
    acts = record.acts
    if all(isinstance(act, Skip) for act in acts):
        return path, forked
    prompts = any(isinstance(act, Prompt) for act in acts)
    spoken = any(isinstance(act, (AgentText, Thinking, ToolUse)) for act in acts)
    if prompts and (path.answered or not path.acts):
        record.forks = forked
        return _Path(list(acts), record.parent, spoken), False
    whole = path.acts + acts
    if forked and path.acts:
        record.forks = True
        record.parent = path.before
        record.acts = whole = [*merge_prompts([a for a in whole if isinstance(a, Prompt)]),
                               *(a for a in whole if not isinstance(a, Prompt))]  # fmt: skip
    return _Path(whole, path.before, path.answered or spoken), False
