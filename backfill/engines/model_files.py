"""The directory that holds a model's files: given, carried by a package, or a hub's local copy.

Deliberately absent: revisions; a model that matters is pinned by its directory, and its digests are recorded.
"""

from __future__ import annotations

import re
from pathlib import Path

from backfill.errors import ModelError
from backfill.weights import check_model_dir, resolve_model

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]


def local_model(name: str) -> Path:
    """The directory of a model, checked to hold what loading needs.

    A hub name is looked up in the hub's cache and fetched if it is not there (never with HF_HUB_OFFLINE=1). Raises
    ModelError where there is no such model or a file is missing.
    """
    if not name:
        raise ModelError("engine.model names no model", hint="set engine.model to a directory, hub or package name")
    found = resolve_model(name)
    directory = Path(found).expanduser()
    if not directory.is_dir():
        if not _HUB_NAME.fullmatch(found):
            raise ModelError(f"there is no model directory {found}", hint="engine.model names the model")
        directory = _from_hub(found)
    check_model_dir(directory)
    return directory


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelError(f"{name} is no directory, and huggingface_hub is not installed") from error
    for local_only in (True, False):
        try:
            return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=local_only))
        except Exception as error:  # a dozen types, of three libraries; all of them mean that the model is not there
            failure = error
    reason = str(failure).partition("\n")[0]
    hint = f"where the network is: hf download {name}; then set HF_HUB_CACHE to that folder here"
    raise ModelError(f"cannot find the model {name}: {reason}", hint=hint)
