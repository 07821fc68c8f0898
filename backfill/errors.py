"""Typed errors: what is wrong, where, and what to do.

Every error a user can meet is a `BackfillError`; the command line prints its message and hint and turns it into the
exit code that the class names. Deliberately absent: matching of messages by substring; callers look at the type and
at `retryable` only.
"""

from __future__ import annotations

from typing import ClassVar


class BackfillError(Exception):
    """Base of all errors with a message for people.

    `hint` says what to do next; `retryable` says that the same call may succeed later without a change.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.retryable = retryable


class UsageError(BackfillError):
    """The command line is off: unknown mode, a path that is not there, contradictory options."""

    exit_code = 2


class ConfigError(BackfillError):
    """The configuration is off: an unknown key, a wrong type, a value out of range."""

    exit_code = 2


class ModelError(BackfillError):
    """A model cannot be found, is damaged, or lacks a file that is needed to load it."""


class EngineError(BackfillError):
    """The distillation engine could not be started, or died and could not be replaced."""


class ShardError(BackfillError):
    """A shard cannot be trusted: its data does not match its manifest, or its manifest does not match the plan."""


class BundleError(BackfillError):
    """A bundle is damaged, of an unknown format, or hostile."""


class BundleChanged(BundleError):
    """Another writer switched the bundle while a new state of it was being made; nothing of it is lost."""


class MergeRefused(BackfillError):
    """Bundles that do not fit together: other encoder, tokenizer or format."""


class JoinRefused(BackfillError):
    """This process cannot work in a run folder as it is: another version, tokenizer or configuration decides there."""


class DiskFull(BackfillError):
    """No room is left, or a limit is reached, where something had to be written."""


class Interrupted(BackfillError):
    """The run was stopped by a signal after committing what was done; the same command resumes it."""

    exit_code = 75
