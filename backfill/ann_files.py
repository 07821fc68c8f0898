"""The approximate indexes of a bundle, in ann/: what they were made of, whether they still fit, whom they are from.

Derived, so no manifest names them: a card, ann/NAME-<16 hex>.json, names the vector files that an index was built over
and the index's own digest; one that does not fit the bundle as it stands is passed over, and search goes without. FAISS
reads untrusted files badly, so only an index that this user's own commands built is loaded; a stranger's is not read at
all. Deliberately absent: the indexes themselves (`indexes/ann`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from backfill.durable import attempt_name, fsync_dir, fsync_file, make_dirs, publish_file, sha256_bytes, sha256_file
from backfill.errors import BackfillError
from backfill.ids import canonical_json
from backfill.trust import known_segments, record_segments

if TYPE_CHECKING:
    from backfill.bundle import Bundle
    from backfill.bundle_manifest import BundleManifest
    from backfill.config import IndexConfig

FOLDER, FORMAT = "ann", 1
MAX_CARD_BYTES = 16 << 20
_MMAP = "IO_FLAG_MMAP_IFC"


class AnnCard(msgspec.Struct, frozen=True):
    """An index: roles of its vectors, SHA-256 of the files in their order, description, effort of a search, recall of
    the ten best, its own file and digest. `file` is "" where every row is looked at."""

    format: int
    roles: str
    files: list[str]
    n_rows: int
    kind: str
    factory: str
    reason: str
    effort: int = 0
    recall10: float = 1.0
    bytes: int = 0
    file: str = ""
    sha256: str = ""
    seconds: float = 0.0


class OpenAnn(msgspec.Struct, frozen=True):
    """A loaded index; see `vector_space.Ann`."""

    index: Any
    effort: int

    def candidates(self, query: Any, n: int, allowed: Any) -> Any:
        """See `vector_space.Ann`."""
        from backfill.indexes.ann import search

        return search(self.index, query, n, self.effort, allowed)


def cards_of(root: Path, manifest: BundleManifest, *, kind: str = "") -> Iterator[tuple[AnnCard, Path, Path]]:
    """The indexes (of one kind) that fit a manifest: card, its path, the index's path.

    Damaged and foreign cards are passed over.
    """
    by_role: dict[str, list[str]] = {}
    for path in sorted((root / FOLDER).glob("*.json")):
        try:
            if path.is_symlink() or path.stat().st_size > MAX_CARD_BYTES:
                continue
            card = msgspec.json.decode(path.read_bytes(), type=AnnCard)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if card.format != FORMAT or Path(card.file).name != card.file or not card.file or kind not in ("", card.kind):
            continue
        wanted = by_role.setdefault(card.roles, digests_of(manifest, card.roles.split(",")))
        if card.files == wanted:
            yield card, path, root / FOLDER / card.file


def open_ann(bundle: Bundle, roles: Sequence[str]) -> OpenAnn | None:
    """The index over the vectors of these roles that this user built for the bundle as it stands, mapped; or None."""
    for card, _, path in cards_of(bundle.path, bundle.manifest):
        if card.roles != ",".join(roles) or card.sha256 not in known_segments():
            continue
        if path.is_file() and not path.is_symlink() and sha256_file(path) == card.sha256:
            import faiss

            try:
                return OpenAnn(faiss.read_index(str(path), getattr(faiss, _MMAP, 0)), card.effort)
            except RuntimeError:
                continue
    return None


def refresh(root: Path, config: IndexConfig) -> list[AnnCard]:
    """Builds what a bundle lacks for the size it has, drops what no longer fits; returns a card for each kind of
    vectors, also where none is needed, and for each field of words that was joined (`joined_words`). Raises ConfigError
    for a GPU that is not there.

    An index that misses the recall wanted is not kept: search goes on by shortlist, and the card's reason says so.
    """
    from backfill.bundle import Bundle
    from backfill.chunks import VERBATIM_VECTORS
    from backfill.joined_words import join_words
    from backfill.ranking import part_roles

    bundle = Bundle.open(root)
    _drop_others(root, bundle.manifest)
    out: list[AnnCard] = []
    fitting = {card.roles: card for card, *_ in cards_of(root, bundle.manifest)}
    for roles in (part_roles(bundle), ("vectors:claims",), (VERBATIM_VECTORS,)):
        held = any(segment.has(role) for segment in bundle.segments for role in roles)
        if held and bundle.manifest.encoder is not None:
            name = ",".join(roles)
            out.append(fitting.get(name) or _build(bundle, roles, config))
    return out + join_words(bundle)


def _build(bundle: Bundle, roles: Sequence[str], config: IndexConfig) -> AnnCard:
    from backfill.indexes import ann

    encoder = bundle.manifest.encoder
    dim = encoder.dim if encoder is not None else 0
    files = [s.vectors(role, dim) for s in bundle.segments for role in roles if s.has(role)]
    n_rows = sum(map(len, files))
    memory_bytes = int(config.ann_memory_gb * 1e9) or _half_of_memory()
    choice = ann.choose(n_rows, dim, memory_bytes=memory_bytes, wanted=config.ann)
    digests = digests_of(bundle.manifest, roles)
    card = AnnCard(FORMAT, ",".join(roles), digests, n_rows, choice.kind, choice.factory, choice.reason)
    if choice.kind == "exact":
        return card
    started = time.monotonic()
    index = ann.build(choice, files, config.ann_device)
    effort, recall = ann.gate(index, choice, files, config.ann_recall)
    card = msgspec.structs.replace(card, effort=effort, recall10=recall, seconds=round(time.monotonic() - started, 3))
    if recall < config.ann_recall:
        missed = f"; not kept: recall@10 is {recall:.3f}, {config.ann_recall} were wanted"
        return msgspec.structs.replace(card, reason=choice.reason + missed)
    return _write(bundle.path, card, index)


def _write(root: Path, card: AnnCard, index: Any) -> AnnCard:
    import faiss

    folder = root / FOLDER
    make_dirs(folder)
    temporary = folder / f".{os.getpid()}-{attempt_name()}.faiss"
    try:
        faiss.write_index(index, str(temporary))
    except RuntimeError as error:
        temporary.unlink(missing_ok=True)
        raise BackfillError(f"the index cannot be written to {folder}: {error}") from error
    return publish(root, card, temporary)


def publish(root: Path, card: AnnCard, temporary: Path, *, seconds: float | None = None) -> AnnCard:
    """Gives an index that was written to a temporary file in ann/ its name, and publishes its card, which it returns.

    The index is this user's own from then on. `seconds` is how long it took to make.
    """
    folder = root / FOLDER
    name = card.roles.replace("vectors:", "").replace(":", "-").replace(",", "-")
    try:
        fsync_file(temporary)
        digest = sha256_file(temporary)
        file = f"{name}-{digest[:16]}{temporary.suffix}"
        card = msgspec.structs.replace(card, file=file, sha256=digest, bytes=temporary.stat().st_size)
        if seconds is not None:
            card = msgspec.structs.replace(card, seconds=seconds)
        temporary.replace(folder / card.file)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(folder)
    record_segments([digest])
    data = canonical_json(card)
    publish_file(folder / f"{name}-{sha256_bytes(data)[:16]}.json", data)
    return card


def _drop_others(root: Path, manifest: BundleManifest) -> None:
    folder = root / FOLDER
    if folder.is_dir():
        kept = {path for _, *paths in cards_of(root, manifest) for path in paths}
        for path in set(folder.iterdir()) - kept:
            if not path.name.startswith("."):
                path.unlink(missing_ok=True)


def digests_of(manifest: BundleManifest, roles: Sequence[str]) -> list[str]:
    """SHA-256 of the files of these roles, in the order in which a search numbers their rows or documents."""
    by_place = {(entry.path.split("/")[1], entry.role): entry.sha256 for entry in manifest.files if "/" in entry.path}
    return [by_place[s, role] for s in manifest.segments for role in roles if (s, role) in by_place]


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
