"""`backfill`: finds the command, runs it, and turns what happens into one message and an exit code.

Exit codes: 0 done, 1 failed, 2 bad usage or config, 75 interrupted (the same command resumes). With `--json` a command
prints exactly one line on stdout, also when it fails. Only the chosen command's module is imported.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress

from backfill.errors import BackfillError

COMMANDS: dict[str, str] = {
    "run": "all stages: transcripts to a bundle; resumes by itself",
    "doctor": "check this machine before a run, and say what to fix",
    "prefetch": "fetch a config's models, for jobs without a network",
    "plan": "what a run will take: exchanges, tokens, hours, memory, disk, price",
    "scan": "read transcripts into exchanges, occurrences and the ledger",
    "gate": "judge engines over a fixed sample before they touch a corpus",
    "bench": "measure an engine's settings over your own transcripts: speed, cost, fidelity",
    "archive": "keep raw transcripts in a private cold storage, and restore them",
    "work": "distill and embed the shards of one worker of a run",
    "slurm": "run a config on a Slurm cluster, and see how it stands",
    "merge": "merge runs and bundles into one bundle",
    "add": "add new transcripts to a bundle",
    "watch": "add transcripts to a bundle as their sessions end",
    "enqueue": "note that a transcript waits to be added (for an agent's hook)",
    "sweep": "distill what landed in bundles without an engine",
    "rollback": "go back to an earlier state of a bundle",
    "forget": "hide exchanges, in every later merge too",
    "gc": "free what a bundle no longer needs",
    "export": "pack a bundle into one file",
    "import": "unpack a bundle from one file",
    "index": "build the indexes that a large bundle is searched by",
    "verify": "check a bundle or a run against its checksums and its own rows",
    "status": "how far a run is",
    "report": "a page about a run or a bundle, and report.json",
    "query": "search a bundle",
    "show": "one exchange with its places and neighbours",
    "rooms": "walk the rooms of a bundle",
    "eval": "measure retrieval over labelled queries",
    "serve": "a web page and a JSON API over a bundle",
    "mcp": "serve a bundle to coding agents",
    "pack": "fill a token budget with the memory, for a prompt or CLAUDE.md",
}
MODULES = {"import": "import_"}  # the word is Python's own
EXIT_INTERRUPTED = 75
_OS_HINT = "what was written before stands, and the same command goes on from it"
_NO_ROOM = f"free space, or raise the quota; {_OS_HINT}"
_NOT_OURS = "make it writable for this user, or name a folder that is"
_OS_HINTS = {
    errno.ENOSPC: _NO_ROOM, errno.EDQUOT: _NO_ROOM, errno.EFBIG: _NO_ROOM,
    errno.EACCES: _NOT_OURS, errno.EPERM: _NOT_OURS, errno.EROFS: _NOT_OURS,
    errno.EMFILE: f"raise the limit of open files (`ulimit -Hn`); {_OS_HINT}",
}  # fmt: skip
# Enough for the shards of some million exchanges; where a system takes no such number, what macOS takes.
_OPEN_FILES = (65_536, 10_240)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = next((a for a in arguments if not a.startswith("-")), "")
    if name not in COMMANDS or arguments[0] != name:
        parser = _parser()
        parser.parse_args(arguments)
        parser.print_help()
        return 2
    _allow_open_files()
    module = importlib.import_module(f"backfill.commands.{MODULES.get(name, name)}")
    command = argparse.ArgumentParser(prog=f"backfill {name}", description=module.__doc__)
    module.add_arguments(command)
    if not any("--json" in action.option_strings for action in command._actions):
        command.add_argument("--json", action="store_true", help="one line of JSON on stdout")
    return _guarded(module, command.parse_args(arguments[1:]))


def _allow_open_files() -> None:
    """Raises this process's own limit, often 1,024: a merge has some files of every shard or segment open at once."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in _OPEN_FILES:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= allowed:
            return
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
            return


def _guarded(module: object, args: argparse.Namespace) -> int:
    try:
        return int(module.run(args))  # type: ignore[attr-defined]
    except BackfillError as error:
        return _fail(args, str(error), error.hint, error.exit_code)
    except KeyboardInterrupt:
        return _fail(args, "interrupted", "the same command goes on from what was done", EXIT_INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        return _fail(args, _told(error), _OS_HINTS.get(error.errno or 0, _OS_HINT), 1)


def _told(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def _fail(args: argparse.Namespace, message: str, hint: str, code: int) -> int:
    print(f"backfill: {message}" + (f"\n  {hint}" if hint else ""), file=sys.stderr)
    if getattr(args, "json", False):
        from backfill.ids import canonical_json

        kind = "interrupted" if code == EXIT_INTERRUPTED else "failed" if code == 1 else "usage"
        print(canonical_json({"error": {"kind": kind, "message": message, "hint": hint}, "ok": False}).decode())
    return code


def _parser() -> argparse.ArgumentParser:
    from backfill import __version__

    lines = "\n".join(f"  {name:<8} {text}" for name, text in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="backfill",
        description="Months of coding-agent transcripts as a small, searchable memory.",
        epilog=f"commands:\n{lines}\n\n`backfill COMMAND --help` tells more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="backfill COMMAND [options]",
    )
    parser.add_argument("command", choices=sorted(COMMANDS), metavar="COMMAND")
    parser.add_argument("--version", action="version", version=f"backfill {__version__}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
