#!/usr/bin/env bash
# Builds, checks and times every kernel, GPU embedding, vLLM with outlines, and index building, in under 8 minutes.
# Prints a table with shares of the measured copy bandwidth and matrix rate, and writes bench/gpu_check.json.
# Exit codes: 0 checked on a GPU, 1 something failed, 77 no GPU (what a CPU can check was checked). --help says more.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Kernels are built anew, so that what is checked is what this machine's compiler makes of them.
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
unset TRITON_INTERPRET
export TRITON_CACHE_DIR=$cache HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python=${PYTHON:-.venv/bin/python}
[[ -x $python ]] || python=python3
"$python" -m bench.gpu_check "$@"
