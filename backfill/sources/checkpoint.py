"""What a reading knows at the end of a whole line, as bytes: a file that grew is read on from there.

`freeze` writes a graph of objects of the classes below as MessagePack, `thaw` builds it again; nothing else can come
out of the bytes, and no code runs. Deliberately absent: where the bytes are kept (`scan`) and when they fit a file
(`sources`).
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, get_args

import msgspec

from backfill.assemble import Joined, Link, OpenExchange, OpenPart, OpenTool
from backfill.ledger import Fate, LedgerBuilder
from backfill.privacy import Redactor
from backfill.records import Act, Record
from backfill.sources.base import Unit
from backfill.steering import QueuedText, TypedQueue
from backfill.streams import Links, Opener, Stream

FORMAT = 2
Classes: TypeAlias = dict[str, type[Any]]
_PRIMITIVES = (type(None), bool, int, float, str, bytes)
_CONTAINERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    "list": list, "tuple": tuple, "set": set, "deque": deque, "array": partial(array, "q"),
}  # fmt: skip
_CORE: tuple[type[Any], ...] = (
    *get_args(Act), Record, Fate, LedgerBuilder, Joined, Link, OpenExchange, OpenPart, OpenTool, QueuedText, TypedQueue,
    Links, Opener, Stream,
)  # fmt: skip


class Checkpoint(msgspec.Struct, frozen=True):
    """The state of a reading after the first `offset` bytes of a unit, of BLAKE2b-128 `digest`."""

    source: str
    offset: int
    digest: bytes
    state: bytes


class _Graph(msgspec.Struct):
    """Nodes in the order in which they were met; `fields` names what each class holds. In a node, a list of one number
    refers to the node of that number; all else stands for itself."""

    format: int
    fields: dict[str, list[str]]
    nodes: list[tuple[str, list[Any]]]


def freeze(root: Any, own: Iterable[type[Any]], redactor: Redactor) -> bytes | None:
    """The graph below `root`; `own` are the reader's own classes. None where a text in it may hold a secret.

    Raises TypeError for an object of any other class, OverflowError for a number beyond 64 bits.
    """
    classes = _named(own)
    fields: dict[str, list[str]] = {}
    nodes: list[tuple[str, list[Any]]] = []
    texts: list[str] = []
    queue: list[Any] = [root]
    numbers = {id(root): 0}

    def ref(value: Any) -> Any:
        if isinstance(value, str):
            texts.append(value)
        if isinstance(value, _PRIMITIVES):
            return value
        number = numbers.get(id(value))
        if number is None:
            number = numbers[id(value)] = len(queue)
            queue.append(value)
        return [number]

    for value in queue:  # which grows
        kind = type(value).__name__
        if isinstance(value, Unit):
            nodes.append(("unit", []))
        elif value is msgspec.UNSET:
            nodes.append(("unset", []))
        elif type(value) is dict:
            nodes.append(("dict", [ref(item) for pair in value.items() for item in pair]))
        elif kind in _CONTAINERS:
            nodes.append((kind, [ref(item) for item in (sorted(value) if kind == "set" else value)]))
        elif classes.get(kind) is type(value):
            names = fields.setdefault(kind, _names(value))
            nodes.append((kind, [ref(getattr(value, name)) for name in names]))
        else:
            raise TypeError(f"{type(value)} belongs to no state of a reading")
    # Segmented text has none left, but what a reader holds back or a title that waits for its session may.
    joined = "\n".join(texts)
    return msgspec.msgpack.encode(_Graph(FORMAT, fields, nodes)) if redactor.text(joined) == joined else None


def thaw(data: bytes, unit: Unit, own: Iterable[type[Any]]) -> Any:
    """The root of a frozen graph, for a reading of `unit` by a reader with its `own` classes.

    Raises ValueError where it is none, or one of other code.
    """
    try:
        graph = msgspec.msgpack.decode(data, type=_Graph)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no state of a reading: {error}") from error
    if graph.format != FORMAT:
        raise ValueError(f"a state of format {graph.format}")
    try:
        return _built(graph, unit, _named(own))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged state: {error}") from error


def _named(own: Iterable[type[Any]]) -> Classes:
    return {kind.__name__: kind for kind in (*_CORE, *own)}


def _built(graph: _Graph, unit: Unit, classes: Classes) -> Any:
    made: list[Any] = [_empty(kind, unit, classes) for kind, _ in graph.nodes]

    def value_of(item: Any) -> Any:
        if type(item) is not list:
            return item
        (number,) = item
        if graph.nodes[number][0] == "tuple" and made[number] is None:
            made[number] = tuple(map(value_of, graph.nodes[number][1]))
        return made[number]

    for number, (kind, items) in enumerate(graph.nodes):
        target = made[number]
        if kind == "dict":
            values = [value_of(item) for item in items]
            target.update(zip(values[::2], values[1::2], strict=True))
        elif kind == "set":
            target.update(map(value_of, items))
        elif kind in ("list", "deque", "array"):
            target.extend(map(value_of, items))
        elif kind == "tuple":
            made[number] = value_of([number])
        elif kind in classes:
            for name, item in zip(graph.fields[kind], items, strict=True):
                setattr(target, name, value_of(item))
            if sorted(graph.fields[kind]) != sorted(_names(target)):
                raise ValueError(f"{kind} has other fields now")
    return made[0]


def _empty(kind: str, unit: Unit, classes: Classes) -> Any:
    """The object of a node, without what it holds; a tuple has to wait for that."""
    if kind in ("unit", "unset", "tuple"):
        return {"unit": unit, "unset": msgspec.UNSET, "tuple": None}[kind]
    if kind == "dict":
        return {}
    made: Any = classes.get(kind)
    return made.__new__(made) if made is not None else _CONTAINERS[kind](())


def _names(value: Any) -> list[str]:
    """What an object holds, by name, in the order of its class."""
    if isinstance(value, msgspec.Struct):
        return list(value.__struct_fields__)
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return slots or list(vars(value))
