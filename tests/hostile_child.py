"""Child of test_hostile: opens, searches, verifies and merges bundles that mean harm, under a limit of memory.

Prints one JSON line: what was not a clear error. A crash of the process, or a MemoryError, fails the test too.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from backfill.bundle import Bundle
from backfill.errors import BackfillError
from backfill.inputs import open_bundle
from backfill.merge import merge_inputs
from backfill.verify import verify_bundle

LIMIT_BYTES = 3 << 30


def sign(bundle: Path, manifest: dict[str, Any]) -> None:
    """Makes manifest.sha256 vouch for the manifest: only a liar's bundle gets this far."""
    data = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    (bundle / "manifest.json").write_bytes(data)
    (bundle / "manifest.sha256").write_text(f"{sha256(data).hexdigest()}  manifest.json\n")


def mutated(data: bytes, dealer: random.Random) -> bytes:
    """The bytes with one kind of damage."""
    kind = dealer.randrange(6)
    at = dealer.randrange(len(data)) if data else 0
    if kind == 0:
        return data[:at] + bytes([data[at] ^ 1 << dealer.randrange(8)]) + data[at + 1 :] if data else b"x"
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + dealer.randbytes(dealer.randrange(1, 64)) + data[at:]
    if kind == 3:
        return data[:at] + b"\xff" * min(8, len(data) - at) + data[at + 8 :]
    if kind == 4:
        return data[:-8] + (dealer.choice((0, 1 << 31, (1 << 32) - 1))).to_bytes(4, "little") + data[-4:]
    return data[: max(0, at - 40)] + dealer.randbytes(40) + data[at:]


def fuzz_manifest(tree: Any, dealer: random.Random) -> Any:
    """The tree with one value replaced by something of another size, sign or kind."""
    values = [None, -1, 0, 1 << 40, 1 << 70, 1e308, "", "../x", "/etc/passwd", "a" * 5000, [], {}, [[[]]], True, "\0"]
    if isinstance(tree, dict) and tree and dealer.random() < 0.85:
        key = dealer.choice(sorted(tree))
        return {**tree, key: fuzz_manifest(tree[key], dealer)}
    if isinstance(tree, list) and tree and dealer.random() < 0.85:
        at = dealer.randrange(len(tree))
        return [*tree[:at], fuzz_manifest(tree[at], dealer), *tree[at + 1 :]]
    return dealer.choice(values)


def harm(bundle: Path, dealer: random.Random) -> str:
    """Damages one thing of the bundle and signs it anew; says what."""
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    if dealer.random() < 0.4:
        fuzzed = fuzz_manifest(manifest, dealer)
        sign(bundle, fuzzed)
        return "manifest"
    entry = dealer.choice(manifest["files"])
    path = bundle / entry["path"]
    data = mutated(path.read_bytes(), dealer)
    path.write_bytes(data)
    entry["bytes"], entry["sha256"] = len(data), sha256(data).hexdigest()
    if dealer.random() < 0.3:
        entry["rows"] = dealer.choice((0, 1, 1 << 20, 1 << 40))
    sign(bundle, manifest)
    return str(entry["path"])


def attempts(bundle: Path, other: Path, out: Path) -> list[Any]:
    """What a user would do with it."""

    def search() -> None:
        with Bundle.open(bundle, trust_encoder=True) as opened:
            for mode in opened.modes():
                hits = opened.search("deadlock of the migration", mode=mode).hits
            for hit in hits:
                opened.exchange(hit.exchange_id)
            opened.claims("deadlock")
            opened.rooms()

    def merge() -> None:
        merge_inputs([open_bundle(bundle), open_bundle(other)], out, {"kind": "test"}, "")

    return [search, lambda: verify_bundle(bundle, trust_encoder=True), merge]


def peak_kb() -> int:
    """The greatest resident memory of this program; getrusage's would begin with that of whoever started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def main() -> None:
    source, scratch, first, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    odd = []
    for seed in range(first, first + count):
        dealer = random.Random(seed)
        bundle, out = scratch / "bundle", scratch / "out"
        shutil.copytree(source, bundle)
        what = harm(bundle, dealer)
        for attempt in attempts(bundle, source, out):
            try:
                attempt()
            except BackfillError:
                continue
            except BaseException as error:
                odd.append({"seed": seed, "what": what, "error": f"{type(error).__name__}: {error}"[:300]})
        shutil.rmtree(bundle)
        shutil.rmtree(out, ignore_errors=True)
    print(json.dumps({"odd": odd, "peak_kb": peak_kb()}))


if __name__ == "__main__":
    main()
