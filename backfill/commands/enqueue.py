"""Leave a note that a transcript waits to be added: for the session-end hook of an agent. Returns at once."""

from __future__ import annotations

import argparse
import os

MAX_HOOK_BYTES = 1 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command line."""
    parser.add_argument(
        "source", metavar="SOURCE", help="a transcript or folder; - reads a hook's JSON and takes its transcript_path"
    )
    parser.add_argument("--bundle", default="", metavar="BUNDLE", help="add it to this bundle only")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Imports almost nothing: an agent waits for it."""
    from backfill.spool import put

    source = _from_hook() if args.source == "-" else args.source
    path = os.path.abspath(os.path.expanduser(source))
    if not os.path.exists(path):
        from backfill.errors import UsageError

        raise UsageError(f"{path} does not exist", hint="name the transcript that the session wrote")
    try:
        entry = put(path, os.path.abspath(os.path.expanduser(args.bundle)) if args.bundle else "")
    except OSError as error:
        from backfill.errors import BackfillError

        raise BackfillError(f"the spool cannot be written: {error}", hint="set BACKFILL_SPOOL to a folder") from error
    if args.json:
        import json

        print(json.dumps({"entry": entry, "ok": True, "source": path}))
    return 0


def _from_hook() -> str:
    import json
    import sys

    from backfill.errors import UsageError

    try:
        found = json.loads(sys.stdin.buffer.read(MAX_HOOK_BYTES))["transcript_path"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            "standard input holds no JSON object with transcript_path", hint="agents pass it to their hooks"
        ) from error
    if not isinstance(found, str) or not found or "\0" in found:
        raise UsageError("transcript_path is no path")
    return found
