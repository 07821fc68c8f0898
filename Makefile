# `make test` sets itself up. Every target works from a fresh clone.
.PHONY: setup check test slow demo bench clean

BIN := .venv/bin
# typings/backfill_kernels is kernels/ under the name it is imported by; mypy takes the operations that exist.
KERNELS := $(patsubst %/,%,$(dir $(wildcard typings/backfill_kernels/*/__init__.py)))

setup:
	scripts/setup

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy backfill $(KERNELS)

test: setup
	$(BIN)/python -m pytest

# Real models on the CPU, a real browser, a real Slurm of one node: minutes. What is not there is skipped, with the reason.
slow: setup
	$(BIN)/python -m pytest -m "slow and not gpu"

demo:
	scripts/quickstart

bench: setup
	$(BIN)/python -m bench all

# Keeps .venv and the converted weights in the user's cache.
clean:
	rm -rf build dist runs *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
