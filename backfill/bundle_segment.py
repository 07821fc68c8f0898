"""The files of one month of a bundle: tables, arrays and vectors, mapped when a search first needs them.

Reads what the manifest names and checks that rows and positions are inside their tables, for a bundle may come from a
stranger. Deliberately absent: anything over several segments (`bundle`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from backfill.bundle_manifest import BundleFile
from backfill.columns import IdColumn, ParquetFile
from backfill.errors import BundleError
from backfill.ids import ID_BYTES

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from backfill.labels import Labels

T = TypeVar("T")

MAX_DIM = 1 << 16
UNKNOWN_US = -(1 << 63)


class Documents(msgspec.Struct, frozen=True):
    """The visible exchanges of a segment, in order of exchange_id; BM25 counts them in this order.

    exchange_row [D] i4, object_row [D] i4 (-1: none), and the visible occurrences of document d, best first, are
    occ_row[occ_indptr[d]:occ_indptr[d + 1]]. claim_row [C] i4 are the visible rows of the claims table.
    """

    exchange_row: npt.NDArray[np.int32]
    object_row: npt.NDArray[np.int32]
    occ_indptr: npt.NDArray[np.int64]
    occ_row: npt.NDArray[np.int32]
    claim_row: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.exchange_row)


class Opened:
    """Things made once, when first needed; different things may be made at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making: dict[str, threading.RLock] = {}
        self._made: dict[str, Any] = {}

    def once(self, key: str, make: Callable[..., T], *args: Any) -> T:
        """What `make(*args)` gave the first time for this key."""
        value: T
        try:
            value = self._made[key]
            return value
        except KeyError:
            pass
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making:
            made = self._made
            if key not in made:
                made[key] = make(*args)
            value = made[key]
            return value

    def has_made(self, key: str) -> bool:
        """Whether it was made already."""
        return key in self._made

    def forget(self) -> None:
        """Drops what was made; it is made again when next needed."""
        with self._lock:
            self._made = {}


class Segment(Opened):
    """The files of one month. Each is opened once, when first needed; reads are thread-safe."""

    def __init__(self, root: Path, name: str, files: Mapping[str, BundleFile]) -> None:
        super().__init__()
        self.root = root
        self.name = name
        self.files = files

    def has(self, role: str) -> bool:
        return role in self.files

    def table(self, role: str) -> ParquetFile:
        """The Parquet file of a role; raises BundleError when the segment has none or its rows are not as promised."""
        return self.once(role, self._table, role)

    def arrays(self, role: str) -> Mapping[str, npt.NDArray[Any]]:
        """The named arrays of a role ("docs", "bm25:core", ...), memory-mapped."""
        return self.once(role, self._arrays, role)

    def path(self, role: str) -> Path:
        """Where the file of a role lies; raises BundleError when the segment has none."""
        return self._entry(role)[1]

    def vectors(self, role: str, dim: int) -> npt.NDArray[np.float16]:
        """[rows, dim] float16, memory-mapped."""
        return self.once(role, self._vectors, role, dim)

    @property
    def docs(self) -> Documents:
        return self.once("=docs", self._documents)

    @property
    def doc_of_row(self) -> npt.NDArray[np.int64]:
        """Exchange row -> document, -1 where the row is not shown."""
        return self.once("=doc_of_row", self._doc_of_row)

    @property
    def sessions(self) -> npt.NDArray[np.uint64]:
        """[D] the session of each document's best occurrence, as a number that is the same in all segments."""
        return self.once("=sessions", self._sessions)

    @property
    def claim_links(self) -> Mapping[str, npt.NDArray[Any]]:
        """Visible claims -> documents, as `links.claim_links` makes them."""
        return self.once("=claim_links", self._claim_links)

    @property
    def exchange_ids(self) -> IdColumn:
        """The ids of all rows of the exchanges table, sorted."""
        return self.once("=ids", lambda: self.table("exchanges").ids("exchange_id"))

    @property
    def document_ids(self) -> npt.NDArray[np.bytes_]:
        """[D] S16 the exchange id of each document, rising; zero bytes at the end of an id are not given back."""
        return self.once("=document_ids", self._document_ids)

    def docs_between(self, low: bytes, high: bytes) -> range:
        """The documents whose ids of 16 bytes lie from `low` to `high`, both included."""
        ids = self.document_ids
        return range(int(ids.searchsorted(low, "left")), int(ids.searchsorted(high, "right")))

    def document_id(self, doc: int) -> bytes:
        """The exchange id of a document."""
        return bytes(self.document_ids[doc]).ljust(ID_BYTES, b"\0")

    def column(self, role: str, name: str) -> list[Any]:
        """A whole column of a table, kept once read."""
        return self.once(f"={role}.{name}", lambda: self.table(role).read([name])[name])

    def labels(self, role: str, name: str) -> Labels:
        """A column of names: text, or lists of rooms (as type:key) or of files (as paths)."""
        return self.once(f"=labels:{role}.{name}", self._labels, role, name)

    @property
    def started_us(self) -> npt.NDArray[np.int64]:
        """[occurrences] when each began, in microseconds since 1970; UNKNOWN_US where nobody knows."""
        return self.once("=started", self._started)

    def rows_where(self, role: str, name: str, wanted: bytes) -> list[int]:
        """The rows whose id in a column is `wanted`, in order."""
        block = self.once(f"=ids:{role}.{name}", self._id_block, role, name)
        rows, at = [], block.find(wanted)
        while at >= 0:
            if at % ID_BYTES == 0:
                rows.append(at // ID_BYTES)
            at = block.find(wanted, at + 1)
        return rows

    def _labels(self, role: str, name: str) -> Labels:
        from backfill.labels import Labels

        table = self.table(role)
        groups = range(len(table.group_starts) - 1)
        # A row group at a time: as Python values a column of lists takes ten times its room.
        values = (value for group in groups for value in table.read([name], [group])[name])
        try:
            if name == "room_assignments":
                labels = Labels.of([f"{r['room_type']}:{r['room_key']}" for r in cell or ()] for cell in values)
            elif name == "files_touched":
                labels = Labels.of([touched["path"] for touched in cell or ()] for cell in values)
            else:
                labels = Labels.of((value,) for value in values)
        except (KeyError, TypeError) as error:
            raise BundleError(f"{self.files[role].path} holds no names in {name}") from error
        if not all(isinstance(label, str) for label in labels.names):
            raise BundleError(f"{self.files[role].path} holds no names in {name}")
        return labels

    def _started(self) -> npt.NDArray[np.int64]:
        import numpy as np

        times = self.table("occurrences").read(["started_at"])["started_at"]
        try:
            return np.array([UNKNOWN_US if us is None else us for us in times], np.int64)
        except (TypeError, ValueError, OverflowError) as error:
            raise BundleError(f"{self.files['occurrences'].path} holds no times in started_at") from error

    def _id_block(self, role: str, name: str) -> bytes:
        """A column of ids side by side, zeros where there is none."""
        values = self.table(role).read([name])[name]
        if any(value is not None and len(value) != ID_BYTES for value in values):
            raise BundleError(f"{self.files[role].path} has ids of another length in {name}")
        return b"".join(bytes(ID_BYTES) if value is None else value for value in values)

    def _entry(self, role: str) -> tuple[BundleFile, Path]:
        if role not in self.files:
            raise BundleError(f"segment {self.name} has no file of the role {role}")
        entry = self.files[role]
        return entry, self.root / entry.path

    def _table(self, role: str) -> ParquetFile:
        entry, path = self._entry(role)
        file = ParquetFile(path)
        if file.n_rows != entry.rows:
            raise BundleError(f"{entry.path} has {file.n_rows} rows, the manifest says {entry.rows}")
        return file

    def _arrays(self, role: str) -> Mapping[str, npt.NDArray[Any]]:
        from backfill.arrays import open_arrays

        return open_arrays(self._entry(role)[1])

    def _vectors(self, role: str, dim: int) -> npt.NDArray[np.float16]:
        import numpy as np

        entry, path = self._entry(role)
        if not 0 < dim <= MAX_DIM or entry.bytes != entry.rows * dim * 2:
            raise BundleError(f"{entry.path} does not hold {entry.rows} vectors of {dim} dimensions")
        if not entry.rows:
            return np.zeros((0, dim), np.float16)
        return np.memmap(path, dtype="<f2", mode="r", shape=(entry.rows, dim))

    def _document_ids(self) -> npt.NDArray[np.bytes_]:
        import numpy as np

        ids = self.arrays("docs").get("exchange_id")
        if ids is None:
            # A bundle of before documents had their ids beside them.
            every = list(self.exchange_ids)
            return np.array([every[row] for row in self.docs.exchange_row.tolist()], f"S{ID_BYTES}")
        if ids.dtype != "u1" or ids.shape != (len(self.docs), ID_BYTES):
            raise BundleError(f"{self.files['docs'].path} does not give each document an id")
        named: npt.NDArray[np.bytes_] = ids.view(f"S{ID_BYTES}").ravel()
        return named

    def _doc_of_row(self) -> npt.NDArray[np.int64]:
        import numpy as np

        docs = np.full(self.files["exchanges"].rows, -1, np.int64)
        docs[self.docs.exchange_row] = np.arange(len(self.docs))
        return docs

    def _sessions(self) -> npt.NDArray[np.uint64]:
        arrays = self.arrays("docs")
        if "session" in arrays:
            numbers = arrays["session"]
            if numbers.ndim != 1 or numbers.dtype != "<u8" or len(numbers) != len(self.docs):
                raise BundleError(f"{self.files['docs'].path} does not give each document a session")
            return numbers
        from backfill.links import session_numbers

        agents, sessions = (self.column("occurrences", name) for name in ("agent", "session_id"))
        return session_numbers((agents[row], sessions[row]) for row in self.docs.occ_row[self.docs.occ_indptr[:-1]])

    def _claim_links(self) -> Mapping[str, npt.NDArray[Any]]:
        from backfill.links import claim_links

        arrays = self.arrays("docs")
        if "claim_indptr" not in arrays:
            ids = self.exchange_ids
            docs = {ids[int(row)]: doc for doc, row in enumerate(self.docs.exchange_row)}
            rows = self.docs.claim_row.tolist()
            cells = self.column("claims", "exchange_ids") if rows else []
            return claim_links((cells[row] for row in rows), docs)
        links = {name: arrays.get(name) for name in ("claim_indptr", "claim_doc", "claim_far")}
        steps, docs_of, far = links.values()
        if (
            steps is None
            or docs_of is None
            or far is None
            or not _rising(steps, len(self.docs.claim_row), len(docs_of))
            or not _within(docs_of, -1, len(self.docs))
            or far.dtype != "u1"
            or far.shape != (int((docs_of < 0).sum()), ID_BYTES)
        ):
            raise BundleError(f"{self.files['docs'].path} links claims to documents that are not there")
        return {"claim_indptr": steps, "claim_doc": docs_of, "claim_far": far}

    def _documents(self) -> Documents:
        import numpy as np

        arrays = self.arrays("docs")
        n_claims = self.files["claims"].rows if self.has("claims") else 0
        try:
            docs = Documents(
                exchange_row=arrays["exchange_row"],
                object_row=arrays["object_row"],
                occ_indptr=arrays["occ_indptr"],
                occ_row=arrays["occ_row"],
                claim_row=arrays["claim_row"] if "claim_row" in arrays else np.arange(n_claims, dtype=np.int32),
            )
        except KeyError as error:
            raise BundleError(f"{self.files['docs'].path} lacks the array {error}") from error
        n_docs = len(docs)
        n_objects = self.files["objects"].rows if self.has("objects") else 0
        sound = (
            len(docs.object_row) == n_docs
            and docs.occ_row.ndim == 1
            and _rising(docs.occ_indptr, n_docs, len(docs.occ_row))
            and bool((np.diff(docs.occ_indptr) > 0).all())
            and _within(docs.exchange_row, 0, self.files["exchanges"].rows)
            and _within(docs.object_row, -1, n_objects)
            and _within(docs.occ_row, 0, self.files["occurrences"].rows)
            and _within(docs.claim_row, 0, n_claims)
        )
        if not sound:
            raise BundleError(f"{self.files['docs'].path} points outside its tables")
        return docs


def _within(array: npt.NDArray[Any], low: int, high: int) -> bool:
    if array.ndim != 1 or array.dtype.kind != "i":
        return False
    return not len(array) or bool(array.min() >= low and array.max() < high)


def _rising(steps: npt.NDArray[Any], n: int, total: int) -> bool:
    """Whether `steps` cut `total` entries into `n` runs."""
    if steps.ndim != 1 or steps.dtype.kind != "i" or len(steps) != n + 1:
        return False
    return int(steps[0]) == 0 and int(steps[-1]) == total and bool((steps[1:] >= steps[:-1]).all())
