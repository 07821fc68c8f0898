"""`backfill` for jobs of the Slurm tests: with an encoder made of hashes, which needs no model to load.

Run as `python -m tests.slurm_job FOLDER COMMAND...`; FOLDER holds the encoder's card and the state of this user.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from backfill.cli import main
from tests import fake_encoder

if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        fake_encoder.install(patch, Path(sys.argv[1]))
        sys.exit(main(sys.argv[2:]))
