"""The light side works where torch, vLLM, Ray, pyarrow and transformers are not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundle_fixture import Fixture, write_bundle

HEAVY = ("torch", "vllm", "ray", "triton", "pyarrow", "transformers", "tokenizers", "sentence_transformers", "onnx")
LIGHT = (
    "backfill", "backfill.query", "backfill.bundle", "backfill.fusion", "backfill.indexes.bm25",
    "backfill.indexes.tokenizer", "backfill.indexes.vectors", "backfill.embedders.onnx", "backfill.arrays",
    "backfill.types", "backfill.ids", "backfill.config", "backfill.trust", "backfill.detail", "backfill.cli",
    "backfill.commands.query", "backfill.commands.show", "backfill.commands.rooms", "backfill.commands.pack",
    "backfill.pack", "backfill.claim_search", "backfill.timeline", "backfill.delivery",
)  # fmt: skip

REFUSE = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {HEAVY}:
            raise ImportError(f"{{name}} is not part of the light side")
sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Fixture:
    return write_bundle(tmp_path_factory.mktemp("made") / "bundle")


def python(code: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", REFUSE + code, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd,
        env={"XDG_STATE_HOME": str(cwd), "PATH": "/usr/bin", "PYTHONPATH": str(Path(__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_hook_refuses(tmp_path: Path):
    code = "try:\n    import pyarrow\nexcept ImportError as error:\n    print(error)"
    assert "not part of the light side" in python(code, cwd=tmp_path)


def test_light_modules_import_without_the_heavy_packages(tmp_path: Path):
    code = f"import importlib\nfor name in {LIGHT}:\n    importlib.import_module(name)\nprint('all')"
    assert python(code, cwd=tmp_path) == "all\n"


def test_a_search_answers_without_the_heavy_packages(made: Fixture, tmp_path: Path):
    code = """
from backfill.cli import main
sys.exit(main(["query", sys.argv[1], "deadlock of the migration", "--trust-encoder", "--json"]))
"""
    tree = json.loads(python(code, str(made.path), cwd=tmp_path))
    assert tree["hits"][0]["exchange_id"] == made.id("migrate")
    assert set(tree["hits"][0]["signals"]) == {"bm25", "vector"}
    assert "warnings" not in tree


def test_faiss_searches_without_the_heavy_packages(made: Fixture, tmp_path: Path):
    code = """
from backfill import Bundle, vector_space
vector_space.FAISS_FROM_ROWS = vector_space.SCANNED_BEFORE_IMPORT = 0
bundle = Bundle.open(sys.argv[1], trust_encoder=True)
for _ in range(2):  # the first goes without
    result = bundle.search("deadlock of the migration", mode="distilled-vector")
print("faiss" in sys.modules, result.hits[0].exchange_id)
"""
    assert python(code, str(made.path), cwd=tmp_path) == f"True {made.id('migrate')}\n"


def test_importing_the_package_or_the_command_line_loads_nothing_large(tmp_path: Path):
    code = "import backfill.cli\nprint(sorted({'numpy', 'onnxruntime', 'faiss', 'rich', 'yaml'} & set(sys.modules)))"
    assert python(code, cwd=tmp_path) == "[]\n"
