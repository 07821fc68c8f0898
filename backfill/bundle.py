"""Opens a bundle on any machine, and answers from it: search, exchanges, rooms, claims, packs, a timeline.

Reads `manifest.json` and the sizes of the files it names; tables, indexes and vectors are mapped when a search first
needs them, and verbatim text is decoded for hits alone. A bundle may come from a stranger: paths, sizes and shapes are
checked against limits before anything is allocated. Deliberately absent: checksums of all files (`verify`) and writing.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from backfill.bundle_manifest import (
    BundleFile,
    BundleManifest,
    EncoderInfo,
    SearchDefaults,
    check_files,
    read_manifest,
)
from backfill.bundle_segment import Documents, Opened, Segment
from backfill.columns import ParquetFile
from backfill.errors import BundleError, UsageError
from backfill.ids import ID_BYTES

if TYPE_CHECKING:
    from typing import Self, Unpack

    from backfill.claim_search import ClaimResult
    from backfill.delivery import ExchangePage
    from backfill.detail import ExchangeDetail, RoomPage
    from backfill.embedders.base import Embedder
    from backfill.filters import FilterOptions
    from backfill.pack import Pack, What
    from backfill.query import SearchResult
    from backfill.timeline import TimelineEntry

__all__ = ["Bundle", "BundleFile", "BundleManifest", "Documents", "EncoderInfo", "Segment", "read_manifest"]

MIN_PREFIX_DIGITS = 6


class Bundle(Opened):
    """An open bundle, read-only. Every method may be called from several threads at once.

    `Bundle.open(path)` checks the manifest and that every file it names is there with its size, inside the folder. As a
    context manager it lets go of its files at the end; one that is not closed does so when nobody holds it any more.
    Filters (`project`, `agent`, `room`, `file`, `since`, `until`, `tier`, `kind`) mean the same in every method; see
    `backfill.filters.FilterOptions`.
    """

    def __init__(
        self,
        path: Path,
        manifest: BundleManifest,
        *,
        trust_encoder: bool = False,
        encoder_threads: int = 0,
        keep_mapped: bool = False,
    ) -> None:
        super().__init__()
        self.path = path
        self.manifest = manifest
        self.keep_mapped = keep_mapped
        self._trust_encoder = trust_encoder
        self._encoder_threads = encoder_threads
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
    def open(
        cls,
        path: Path | str,
        *,
        trust_encoder: bool = False,
        encoder_threads: int = 0,
        keep_mapped: bool = False,
    ) -> Self:
        """Opens the bundle in the folder `path`.

        `trust_encoder` loads the bundle's encoder though neither the package nor this user vouches for it;
        `encoder_threads` bounds the threads that encode one query (0: the cores, at most 4).
        `keep_mapped` lets indexes and vectors that were read count as this process's memory, up to their size, for
        searches that read none of them again, as a server wants. Raises UsageError when there is no bundle, BundleError
        when it is damaged, hostile or of another format.
        """
        root = Path(path)
        if not (root / "manifest.json").is_file():
            raise UsageError(
                f"{root} is not a bundle: it has no manifest.json", hint="a run writes its bundle into RUN/bundle"
            )
        manifest = read_manifest(root)
        check_files(root, manifest.files)
        return cls(
            root,
            manifest,
            trust_encoder=trust_encoder,
            encoder_threads=encoder_threads,
            keep_mapped=keep_mapped,
        )

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of every opened file; results that were returned stay good. Using the bundle again opens anew."""
        for segment in self.segments:
            segment.forget()
        self.forget()

    def search(
        self,
        text: str,
        *,
        k: int = 10,
        mode: str = "default",
        per_session: bool = False,
        fold: bool = True,
        superseded: bool = False,
        settings: SearchDefaults | None = None,
        **filters: Unpack[FilterOptions],
    ) -> SearchResult:
        """The `k` best exchanges for `text` among those that pass the filters, best first.

        `mode` is one of `modes()`. `per_session` keeps the best exchange of each session, `fold` lists copies and near
        copies under the best of them, `superseded` lets claims count that a later one replaced. `settings` overrides
        the bundle's fusion, weights and constants. Raises UsageError; see `backfill.query.search`.
        """
        from backfill.filters import Filters
        from backfill.query import search

        return search(
            self,
            text,
            k=k,
            mode=mode,
            filters=Filters.parse(**filters),
            per_session=per_session,
            fold=fold,
            superseded=superseded,
            settings=settings,
        )

    def modes(self) -> tuple[str, ...]:
        """The search modes whose layers the bundle has; `default` first."""
        from backfill.query import working_modes

        return working_modes(self)

    def exchange(self, exchange_id: str) -> ExchangeDetail:
        """An exchange with its object, claims, places and neighbours; 6 or more hex digits of the id are enough.

        Raises UsageError as `find` does.
        """
        from backfill.detail import exchange_detail

        return exchange_detail(self, exchange_id)

    def read(
        self, exchange_id: str, *, query: str = "", cursor: str | None = None, limit_chars: int = 8_000
    ) -> ExchangePage:
        """The verbatim text of an exchange in pages of whole lines and sentences, at most about `limit_chars` each.

        Without `cursor` the first page, around the words of `query` where there is one; a cursor comes from an earlier
        page or from a passage of a hit. Raises UsageError for an id or a cursor that is none.
        """
        from backfill.delivery import exchange_page

        exchange = self.exchange(exchange_id).exchange
        return exchange_page(exchange, query=query, cursor=cursor, limit_chars=limit_chars)

    def rooms(self, room: str | None = None, *, limit: int = 50, cursor: str | None = None) -> RoomPage:
        """The rooms, the fullest first; with `room` (a key or type:key) its exchanges, the newest first.

        `cursor` is that of the page before. Raises UsageError for an unknown room, naming the nearest.
        """
        from backfill.detail import room_page

        return room_page(self, room, limit=limit, cursor=cursor)

    def claims(
        self, text: str = "", *, k: int = 10, superseded: bool = False, **filters: Unpack[FilterOptions]
    ) -> ClaimResult:
        """The `k` best claims for `text`, or the newest where it is empty, with dates, sources and what replaced them.

        Claims that a later one replaced are left out unless `superseded`. `kind` filters the claims themselves, the
        other filters the exchanges that they were distilled from.
        """
        from backfill.claim_search import search_claims
        from backfill.filters import Filters

        return search_claims(self, text, k=k, superseded=superseded, filters=Filters.parse(**filters))

    def pack(
        self,
        budget_tokens: int,
        query: str | None = None,
        *,
        what: What = "objects",
        ids: bool = False,
        **filters: Unpack[FilterOptions],
    ) -> Pack:
        """As many palace objects (or claims) as fit `budget_tokens`, whole, grouped by room, as Markdown for a prompt.

        The newest come first, or the best for `query`. `ids` adds the first digits of each exchange's id, for `show`.
        Raises UsageError for a budget that does not even hold the heading.
        """
        from backfill.filters import Filters
        from backfill.pack import make_pack

        return make_pack(self, budget_tokens, query, what=what, ids=ids, filters=Filters.parse(**filters))

    def timeline(self, **filters: Unpack[FilterOptions]) -> tuple[TimelineEntry, ...]:
        """How many exchanges and sessions each month and project has, in order of month, then project."""
        from backfill.filters import Filters
        from backfill.timeline import timeline

        return timeline(self, Filters.parse(**filters))

    def find(self, prefix: str) -> tuple[Segment, int]:
        """(segment, document) of the visible exchange whose id in hex starts with `prefix`.

        Raises UsageError when the prefix is no hex, shorter than 6 digits, unknown or shared by several exchanges.
        """
        wanted = prefix.lower()
        if not re.fullmatch(rf"[0-9a-f]{{{MIN_PREFIX_DIGITS},32}}", wanted):
            raise UsageError(f"{prefix!r} is not an exchange id: {MIN_PREFIX_DIGITS} to 32 hex digits are wanted")
        low, high = (bytes.fromhex(wanted.ljust(2 * ID_BYTES, digit)) for digit in "0f")
        found = [(segment, doc) for segment in self.segments for doc in segment.docs_between(low, high)]
        if not found:
            raise UsageError(f"no visible exchange has an id that starts with {wanted}")
        if len(found) > 1:
            ids = [segment.document_id(doc).hex() for segment, doc in found[:5]]
            raise UsageError(f"{wanted} is short for {len(found)} exchanges", hint=f"one of {', '.join(ids)}")
        return found[0]

    @property
    def rooms_table(self) -> ParquetFile | None:
        """The table of rooms, or None where the bundle has none."""
        entry = self.files.get("rooms")
        return self.once("rooms", ParquetFile, self.path / entry.path) if entry else None

    def encoder(self) -> tuple[Embedder | None, str]:
        """The query encoder, or None and the reason why vectors cannot be searched. Loaded once."""
        from backfill.trust import load_encoder

        def load() -> tuple[Embedder | None, str]:
            info, threads = self.manifest.encoder, self._encoder_threads
            return load_encoder(self.path, info, trust=self._trust_encoder, threads=threads)

        return self.once("encoder", load)
