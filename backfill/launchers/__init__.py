"""Launchers by name."""

from __future__ import annotations

from backfill.config import Config
from backfill.errors import ConfigError
from backfill.launchers.base import Launcher

__all__ = ["Launcher", "make_launcher"]


def make_launcher(config: Config) -> Launcher:
    """The launcher that a config names. Raises ConfigError for one that this version does not have."""
    if config.launcher.kind == "inline":
        from backfill.launchers.inline import InlineLauncher

        return InlineLauncher(config.scan.workers)
    if config.launcher.kind == "ray":
        from backfill.launchers.ray import RayLauncher

        return RayLauncher(config.launcher)
    raise ConfigError(
        f"launcher.kind {config.launcher.kind} is not run from here",
        hint="on Slurm, call `backfill work RUN --shard K/N` from an array job",
    )
