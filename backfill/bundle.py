"""Opens a bundle on any machine: manifest, segments and their files, read-only and memory-mapped.

Reads `manifest.json` and the sizes of the files it names; tables, indexes and vectors are mapped when a search first
needs them, and verbatim text is decoded for hits alone. A bundle may come from a stranger: paths, sizes and shapes are
checked against limits before anything is allocated. Deliberately absent: checksums of all files (`verify`) and writing.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from backfill.bundle_manifest import BundleFile, BundleManifest, EncoderInfo, check_files, read_manifest
from backfill.columns import IdColumn, ParquetFile
from backfill.errors import BundleError, UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from backfill.embedders.base import Embedder
    from backfill.query import SearchResult

__all__ = ["Bundle", "BundleFile", "BundleManifest", "Documents", "EncoderInfo", "Segment", "read_manifest"]

T = TypeVar("T")

MAX_DIM = 1 << 16
MIN_PREFIX_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Documents:
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


class _Opened:
    """Things made once, when first needed, under a lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    def once(self, key: str, make: Callable[..., T], *args: Any) -> T:
        """What `make(*args)` gave the first time for this key."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make(*args)
            value: T = self._made[key]
            return value


class Segment(_Opened):
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
    def exchange_ids(self) -> IdColumn:
        """The ids of all rows of the exchanges table, sorted."""
        return self.once("=ids", lambda: self.table("exchanges").ids("exchange_id"))

    def column(self, role: str, name: str) -> list[Any]:
        """A whole column of a table, kept once read."""
        return self.once(f"={role}.{name}", lambda: self.table(role).read([name])[name])

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

    def _doc_of_row(self) -> npt.NDArray[np.int64]:
        import numpy as np

        docs = np.full(self.files["exchanges"].rows, -1, np.int64)
        docs[self.docs.exchange_row] = np.arange(len(self.docs))
        return docs

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
        steps = docs.occ_indptr
        sound = (
            len(docs.object_row) == n_docs
            and len(steps) == n_docs + 1
            and all(array.ndim == 1 and array.dtype.kind == "i" for array in (docs.exchange_row, docs.occ_row, steps))
            and steps[0] == 0
            and steps[-1] == len(docs.occ_row)
            and bool((np.diff(steps) > 0).all())
            and _within(docs.exchange_row, 0, self.files["exchanges"].rows)
            and _within(docs.object_row, -1, n_objects)
            and _within(docs.occ_row, 0, self.files["occurrences"].rows)
            and _within(docs.claim_row, 0, n_claims)
        )
        if not sound:
            raise BundleError(f"{self.files['docs'].path} points outside its tables")
        return docs


class Bundle(_Opened):
    """An open bundle. Thread-safe for reading.

    `Bundle.open(path)` checks the manifest and that every file it names is there with its size, inside the folder.
    """

    def __init__(self, path: Path, manifest: BundleManifest, *, trust_encoder: bool = False) -> None:
        super().__init__()
        self.path = path
        self.manifest = manifest
        self._trust_encoder = trust_encoder
        by_segment: dict[str, dict[str, BundleFile]] = {name: {} for name in manifest.segments}
        self.files: dict[str, BundleFile] = {}
        for entry in manifest.files:
            parts = entry.path.split("/")
            roles = by_segment.get(parts[1]) if parts[0] == "seg" and len(parts) > 2 else self.files
            if roles is None:
                raise BundleError(f"{entry.path} lies in a segment that the manifest does not name")
            roles[entry.role] = entry
        for name, roles in by_segment.items():
            missing = [role for role in ("exchanges", "occurrences", "docs") if role not in roles]
            if missing:
                raise BundleError(f"segment {name} lacks {', '.join(missing)}")
        self.segments = tuple(Segment(path, name, by_segment[name]) for name in manifest.segments)

    @classmethod
    def open(cls, path: Path | str, *, trust_encoder: bool = False) -> Bundle:
        """Opens the bundle in the folder `path`.

        `trust_encoder` loads the bundle's encoder though neither the package nor this user vouches for it. Raises
        UsageError when there is no bundle, BundleError when it is damaged, hostile or of another format.
        """
        root = Path(path)
        if not (root / "manifest.json").is_file():
            raise UsageError(
                f"{root} is not a bundle: it has no manifest.json", hint="a run writes its bundle into RUN/bundle"
            )
        manifest = read_manifest(root)
        check_files(root, manifest.files)
        return cls(root, manifest, trust_encoder=trust_encoder)

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        mode: str = "default",
        project: str | None = None,
        agent: str | None = None,
        room: str | None = None,
        file: str | None = None,
        since: str | None = None,
        until: str | None = None,
        tier: str | None = None,
        kind: str | None = None,
    ) -> SearchResult:
        """The `k` best exchanges for `text` among those that pass the filters; see `backfill.query.search`."""
        from backfill.filters import Filters
        from backfill.query import search

        filters = Filters.parse(
            project=project, agent=agent, room=room, file=file, since=since, until=until, tier=tier, kind=kind
        )
        return search(self, text, k=k, mode=mode, filters=filters)

    def find(self, prefix: str) -> tuple[Segment, int]:
        """(segment, document) of the visible exchange whose id in hex starts with `prefix`.

        Raises UsageError when the prefix is no hex, shorter than 6 digits, unknown or shared by several exchanges.
        """
        wanted = prefix.lower()
        if not re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX_DIGITS},32}}", wanted):
            raise UsageError(f"{prefix!r} is not an exchange id: {MIN_PREFIX_DIGITS} to 32 hex digits are wanted")
        found = [
            (segment, doc)
            for segment in self.segments
            for row in segment.exchange_ids.starting_with(wanted)
            if (doc := segment.doc_of_row[row]) >= 0
        ]
        if not found:
            raise UsageError(f"no visible exchange has an id that starts with {wanted}")
        if len(found) > 1:
            ids = [segment.exchange_ids[int(segment.docs.exchange_row[doc])].hex() for segment, doc in found[:5]]
            raise UsageError(f"{wanted} is short for {len(found)} exchanges", hint=f"one of {', '.join(ids)}")
        segment, doc = found[0]
        return segment, int(doc)

    @property
    def rooms(self) -> ParquetFile | None:
        """The table of rooms, or None where the bundle has none."""
        entry = self.files.get("rooms")
        return self.once("rooms", ParquetFile, self.path / entry.path) if entry else None

    def encoder(self) -> tuple[Embedder | None, str]:
        """The query encoder, or None and the reason why vectors cannot be searched. Loaded once."""
        from backfill.trust import load_encoder

        def load() -> tuple[Embedder | None, str]:
            return load_encoder(self.path, self.manifest.encoder, trust=self._trust_encoder)

        return self.once("encoder", load)


def _within(array: npt.NDArray[Any], low: int, high: int) -> bool:
    if array.ndim != 1 or array.dtype.kind != "i":
        return False
    return not len(array) or bool(array.min() >= low and array.max() < high)
