#!/usr/bin/env bash
# The packages that benchmarks compare with, in an environment of their own (bench/.cache/peers, ignored by git), so that
# nothing of them is ever a dependency. `bench/peers.py` appends it to the path: numpy and FAISS are the project's own.
# hnswlib has no wheels and wants a C++ compiler.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

peers=bench/.cache/peers
[[ -x $peers/bin/python ]] || .venv/bin/python -m venv "$peers"
for package in bm25s==0.3.16 rank-bm25==0.2.2 tantivy==0.27.0 usearch==2.26.6 hnswlib==0.8.0 rensa==0.5.0; do
    "$peers/bin/python" -m pip --disable-pip-version-check install -q --prefer-binary "$package" ||
        printf 'peers: %s did not install and is left out\n' "$package" >&2
done
"$peers/bin/python" -m pip list --format freeze
