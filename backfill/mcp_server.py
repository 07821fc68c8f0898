"""The MCP server of a bundle over stdio, by the protocol's official SDK; the tools are those of `agent_tools.py`.

Whatever goes wrong in a call, with its arguments or with the bundle is an answer with isError, never a protocol error.
A bundle that is switched to a new state is opened anew before the next call. Deliberately absent: resources, prompts,
and any transport but stdio.
"""

from __future__ import annotations

import logging
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from backfill import __version__
from backfill.agent_tools import INSTRUCTIONS, TOOLS, call_tool, error_text
from backfill.bundle import Bundle
from backfill.errors import BackfillError

log = logging.getLogger(__name__)


class CurrentBundle:
    """The bundle in its present state."""

    def __init__(self, path: Path, *, trust_encoder: bool) -> None:
        """Raises UsageError or BundleError when there is none to open."""
        self._path = path
        self._trust_encoder = trust_encoder
        self._lock = threading.Lock()
        self._state = self._stamp()
        self._bundle = Bundle.open(path, trust_encoder=trust_encoder)

    def get(self) -> Bundle:
        """The open bundle; the earlier state where the new one cannot be opened yet."""
        with self._lock:
            state = self._stamp()
            if state != self._state:
                try:
                    self._bundle = Bundle.open(self._path, trust_encoder=self._trust_encoder)
                    self._state = state
                except BackfillError:
                    log.exception("the bundle's new state cannot be opened; going on with the earlier one")
            return self._bundle

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = (self._path / "manifest.json").stat()
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino


def make_server(current: CurrentBundle) -> Server[Any]:
    """The server: lists the tools and answers calls."""

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(name=t.name, description=t.description, input_schema=t.schema(), annotations=hints)
                for t in TOOLS.values()
            ]
        )

    async def run_tool(context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        return await anyio.to_thread.run_sync(_answer, current, params.name, params.arguments)

    return Server(
        "backfill", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=run_tool
    )


def _answer(current: CurrentBundle, name: str, arguments: Any) -> types.CallToolResult:
    """The same tree as text and as structured content, as the specification asks for."""
    bundle = None
    try:
        bundle = current.get()
        tree = call_tool(bundle, name, arguments)
        text = msgspec.json.encode(tree).decode()
    except Exception as error:  # whatever it is, the agent gets an answer and the connection lives on
        if not isinstance(error, BackfillError):
            log.exception("the tool %s failed", name[:40])
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=error_text(error, bundle))], is_error=True
        )
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=tree)


def serve(path: Path, *, trust_encoder: bool = False) -> None:
    """Answers on stdin and stdout until stdin ends. Raises UsageError or BundleError when there is no bundle."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    server = make_server(CurrentBundle(path, trust_encoder=trust_encoder))

    async def run() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(run)
