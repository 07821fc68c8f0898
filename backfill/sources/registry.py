"""Which readers there are, and which of them claims a file by its content.

`READERS` is the one place where a new format is named. Deliberately absent: reading (`sources`).
"""

from __future__ import annotations

from collections.abc import Sequence

from backfill.errors import ConfigError
from backfill.sources.aider import AiderReader
from backfill.sources.antigravity import AntigravityReader
from backfill.sources.base import Reader
from backfill.sources.buddies import CodeBuddyReader, WorkBuddyReader
from backfill.sources.chatgpt import ChatGPTReader
from backfill.sources.claude_ai import ClaudeAIReader
from backfill.sources.claude_code import ClaudeCodeReader
from backfill.sources.claude_console import ClaudeConsoleReader
from backfill.sources.cline import ClineReader
from backfill.sources.codex import CodexReader
from backfill.sources.continue_dev import ContinueReader
from backfill.sources.copilot_chat import CopilotChatReader
from backfill.sources.copilot_cli import CopilotCliReader
from backfill.sources.cursor import CursorDatabaseReader, CursorReader, CursorStoreReader
from backfill.sources.databases import DatabaseReader
from backfill.sources.deepseek import DeepSeekReader
from backfill.sources.documents import DocumentReader, is_named
from backfill.sources.droid import DroidReader
from backfill.sources.fx import FxReader
from backfill.sources.gemini_cli import GeminiCliReader
from backfill.sources.goose import GooseDatabaseReader, GooseReader
from backfill.sources.grok import GrokReader
from backfill.sources.hermes import HermesDatabaseReader, HermesReader
from backfill.sources.kimi import KimiReader
from backfill.sources.look import is_index, look
from backfill.sources.mini_swe_agent import MiniSweAgentReader
from backfill.sources.mistral_vibe import MistralVibeReader
from backfill.sources.musecode import MusecodeReader
from backfill.sources.openai_messages import OpenAIMessagesReader
from backfill.sources.opencode import OpenCodeDatabaseReader, OpenCodeReader
from backfill.sources.opencode_transcripts import OpenCodeTranscriptsReader
from backfill.sources.openhands import OpenHandsReader
from backfill.sources.pi import PiReader
from backfill.sources.qwen_code import QwenCodeReader
from backfill.sources.sharegpt import ShareGPTReader
from backfill.sources.specstory import SpecStoryReader
from backfill.sources.swe_agent import SweAgentReader
from backfill.sources.zed import ZedReader

# Specific formats first, the generic one last.
READERS: tuple[Reader, ...] = (
    ClaudeConsoleReader(),
    SpecStoryReader(),
    AiderReader(),
    ClaudeCodeReader(),
    MiniSweAgentReader(),
    OpenHandsReader(),
    FxReader(),
    CodeBuddyReader(),
    WorkBuddyReader(),
    SweAgentReader(),
    CodexReader(),
    ClineReader(),
    CursorReader(),
    GooseReader(),
    ContinueReader(),
    MistralVibeReader(),
    HermesReader(),
    OpenCodeReader(),
    OpenCodeTranscriptsReader(),
    GeminiCliReader(),
    QwenCodeReader(),
    CopilotCliReader(),
    KimiReader(),
    ChatGPTReader(),
    ClaudeAIReader(),
    PiReader(),
    DroidReader(),
    GrokReader(),
    DeepSeekReader(),
    AntigravityReader(),
    MusecodeReader(),
    ShareGPTReader(),
    CopilotChatReader(),
    OpenAIMessagesReader(),
)

# Reads what `scan.documents` names; these formats are texts too, and go before it.
DOCUMENTS = DocumentReader()
_TEXT_FORMATS = ("specstory", "aider", "claude_console")

DATABASE_READERS: tuple[DatabaseReader, ...] = (
    OpenCodeDatabaseReader(),
    CursorDatabaseReader(),
    CursorStoreReader(),
    ZedReader(),
    GooseDatabaseReader(),
    HermesDatabaseReader(),
)


def reader_named(name: str) -> Reader | DatabaseReader:
    """The reader of that name. Raises ConfigError naming the known ones."""
    known: dict[str, Reader | DatabaseReader] = {r.name: r for r in DATABASE_READERS}
    known |= {r.name: r for r in (*READERS, DOCUMENTS)}
    if name not in known:
        raise ConfigError(f"no reader is called {name!r}", hint=f"known: auto, {', '.join(sorted(known))}")
    return known[name]


def detect(head: bytes, source: str, documents: Sequence[str] = ()) -> Reader | None:
    """The reader that claims a unit by the content of its beginning; None for a file that is no transcript.

    A file that `documents` names is one unless it is a transcript: lines of JSON in a text make none.
    """
    seen = look(head, source)
    if documents and is_named(source, documents) and DOCUMENTS.claims(seen):
        json_file = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
        readers = [r for r in READERS if (json_file and not is_index(seen)) or r.name in _TEXT_FORMATS]
        return next((reader for reader in readers if reader.claims(seen)), DOCUMENTS)
    if is_index(seen):
        return None
    return next((reader for reader in READERS if reader.claims(seen)), None)
