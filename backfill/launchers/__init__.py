"""Launchers by name."""

from __future__ import annotations

from collections.abc import Callable

from backfill.config import Config
from backfill.errors import ConfigError
from backfill.launchers.base import Launcher, to_stderr

__all__ = ["Launcher", "make_launcher"]


def make_launcher(config: Config, *, tag: str = "", say: Callable[[str], None] = to_stderr) -> Launcher:
    """The launcher that a config names. `tag` goes into the names of its workers, `say` takes lines for people.

    Raises ConfigError for one that this version does not have.
    """
    if config.launcher.kind == "inline":
        from backfill.launchers.inline import InlineLauncher

        return InlineLauncher(config, tag=tag, say=say)
    if config.launcher.kind == "ray":
        from backfill.launchers.ray import RayLauncher

        return RayLauncher(config, tag=tag, say=say)
    raise ConfigError(
        f"launcher.kind {config.launcher.kind} is not run from here",
        hint="on Slurm, `backfill slurm submit CONFIG` writes and submits the jobs",
    )
