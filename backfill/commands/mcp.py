"""Serve a bundle to agents over MCP (stdio): search, exchanges, rooms, claims and packs, read-only.

Coding agents start this themselves; docs/mcp.md has the configuration for Claude Code, Codex and Cursor.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from backfill.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `backfill mcp`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE")
    parser.add_argument("--trust-encoder", action="store_true", help="load the bundle's encoder, whoever made it")
    parser.add_argument("--json", action="store_true", help="accepted for uniformity: stdout carries the protocol")


def run(args: argparse.Namespace) -> int:
    """Serves until the client closes the connection."""
    try:
        from backfill.mcp_server import serve
    except ModuleNotFoundError as error:
        if error.name not in ("mcp", "mcp_types", "anyio"):
            raise
        raise UsageError("the MCP SDK is not installed", hint="pip install 'backfill[query,mcp]'") from error
    serve(args.bundle, trust_encoder=args.trust_encoder)
    return 0
