"""Cline, and its relatives Roo and Kilo: a folder per task with the API's messages and what the editor showed.

`api_conversation_history.json` is read; `ui_messages.json` shows the same and gives the times, stands in where it is
alone, and has the prompts that the API's messages lost when they were condensed. Tools are XML in the agent's text or
native calls. Deliberately absent: environment details, to-do lists and resumption notices, which the tool adds to the
person's messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from backfill.records import Act, AgentText, Prompt, Record, Skip, Thinking, Titled, ToolResult, ToolUse
from backfill.sources.base import Head, Unit, as_text, parse_time, text_of
from backfill.sources.cline_shown import Message, Shown
from backfill.sources.document import fields
from backfill.sources.jsonl import Decoder
from backfill.sources.loose import loosely, mapping, string
from backfill.sources.typed import merge_prompts, user_acts
from backfill.sources.units import document_of, files_of

_API, _SHOWN = "api_conversation_history.json", "ui_messages.json"
_TOOLS = (
    "execute_command|read_file|write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|edit_file|"
    "search_files|list_files|list_code_definition_names|browser_action|use_mcp_tool|access_mcp_resource|new_task|"
    "ask_followup_question|attempt_completion|plan_mode_respond|switch_mode|fetch_instructions|update_todo_list|"
    "codebase_search|web_fetch|load_mcp_documentation|condense|new_rule|report_bug|run_slash_command|focus_chain"
)
_CALL = re.compile(rf"<({_TOOLS})>(.*?)</\1>", re.DOTALL)
_FIELD = re.compile(r"<(\w+)>\n?(.*?)\n?</\1>", re.DOTALL)
_THOUGHT = re.compile(r"<thinking>(.*?)</thinking>", re.DOTALL)
_RESULT = re.compile(r"\[(\w+)(?: [^\n]{0,4000}?)?\] Result:[ \t]*\n*")
_TYPED = re.compile(r"<(task|feedback|user_message|answer)>\s*(.*?)\s*</\1>(?!.*</\1>)", re.DOTALL)
_DETAILS = re.compile(r"<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
_TASK_ID = re.compile(r"\d{10,}|[0-9a-f-]{36}|[0-9A-Z]{26}")
_CWD = re.compile(r"# Current (?:Working|Workspace) Directory \(([^)\n]+)\)")
# Tools whose result is what the person answers, and the field with what the agent says to him.
_SPOKEN = {"attempt_completion": "result", "ask_followup_question": "question", "plan_mode_respond": "response"}
_ANSWER = "\0answer"
_INJECTED = (
    "[ERROR]", "[TASK RESUMPTION]", "[NOTE]", "# task_progress", "# TODO", "# Todo", "Task was interrupted",
    "<explicit_instructions", "<file_content", "<url_content", "<workspace_diagnostics", "<git_", "Context Window",
)  # fmt: skip


class ClineReader:
    """Reads a task folder, or one of its files alone."""

    name = "cline"
    version = 2
    spans_files = True

    def claims(self, head: Head) -> bool:
        """By a first message with `ts` and roles, or with the tool's marks; by say and ask in what was shown."""
        if not head.objects:
            body = head.raw.lstrip()
            return body[:1] == b"[" and (b'"say":' in body[:4096] or b"<task>" in body[:4096])
        first = head.objects[0]
        if {"session_id", "messages_path"} <= first.keys():
            return True
        if first.get("type") in ("say", "ask"):
            return "ts" in first and first["type"] in first
        if first.get("role") not in ("user", "assistant") or first.keys() & {"uuid", "type", "message", "parentUuid"}:
            return False
        text = text_of(first.get("content"))
        marked = text.lstrip().startswith(("<task>", "<user_message>", "<feedback>")) or "<environment_details>" in text
        return marked or ("ts" in first and isinstance(first.get("content"), list))

    def records(self, unit: Unit) -> Iterator[Record]:
        """One record per message of each file."""
        folder = PurePosixPath(unit.source).parent.name
        session = folder if _TASK_ID.fullmatch(folder) else unit.source
        files = {PurePosixPath(m.source).name: m.end - m.start for m in unit.members}
        has_api = files.get(_API, 0) > len("[]")
        read, shown = _Task(session, unit.assume_tz), Shown(session, unit.assume_tz)
        told: list[tuple[Record, str]] = []  # the API's messages, where prompts that they lost may go between them
        if folder.isdigit():
            read.at = {0: parse_time(int(folder), unit.assume_tz)[0]}
        for member, inner in files_of(unit):
            name = PurePosixPath(member.source).name
            if name not in (_API, _SHOWN) and unit.members and not name.endswith(".messages.json"):
                yield read.about(member.start, member.end, document_of(inner))
                continue
            decoder = Decoder(Message, loosely(Message), lambda m: m.role is not None or m.type is not None, inner)
            messages = (line for _, line in fields(inner, frozenset(("messages",))))
            for piece, message, acts in decoder.read(messages):
                start, end = member.start + piece.start, member.start + piece.end
                if message is None:
                    yield Record(start, end, acts)
                elif message.role is None and message.type is not None:
                    if has_api:
                        shown.keep(start, end, message, read.at)
                    else:
                        yield shown.record(start, end, message)
                elif shown.kept:
                    record = read.message(start, end, message)
                    record.scattered = True
                    told.append((record, text_of(message.content) if message.role == "user" else ""))
                else:
                    yield read.message(start, end, message)
        yield from shown.merged(told, read.cwd)


class _Task:
    """What is remembered from message to message of one task."""

    def __init__(self, session: str, assume_tz: str) -> None:
        self.at: dict[int, int | None] = {}  # by the number of the API's message
        self.cwd = ""
        self._session = session
        self._assume_tz = assume_tz
        self._n = 0
        self._calls: list[tuple[str, str]] = []  # (id, tool) without a result
        self._spoken: set[str] = set()  # calls that speak to the person; his answer is no result
        self._title = ""

    def about(self, start: int, end: int, document: tuple[Any, list[Act]]) -> Record:
        """The record of a file about the task: its id, title and folder, where it says them. It belongs to no
        session, so that messages keep their numbers when it comes later than they do."""
        value, acts = document
        value = mapping(value)
        self._session = string(value.get("session_id")) or self._session
        self.cwd = string(value.get("cwd") or value.get("workspace") or value.get("cwdOnTaskInitialization"))
        self._title = string(mapping(value.get("metadata")).get("title"))
        return Record(start, end, acts or [Skip("meta")])

    def message(self, start: int, end: int, message: Message) -> Record:
        """The record of an API message."""
        content = message.content
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        blocks = [block for block in blocks if isinstance(block, dict)]
        record = Record(start, end, [], self._session)
        if message.role == "assistant":
            record.acts = self._agent_acts(blocks)
            info = message.modelInfo if isinstance(message.modelInfo, dict) else {}
            record.model = str(info.get("modelId") or "")
        elif message.role == "user":
            record.acts = self._user_acts(blocks)
            where = next((found for b in blocks if (found := _CWD.search(_text(b)))), None)
            record.cwd = where[1] if where else self.cwd
        else:
            record.acts = [Skip("system" if message.role else "meta")]
        if self._title:
            record.acts.insert(0, Titled(self._title))
            self._title = ""
        record.at = parse_time(message.ts, self._assume_tz)[0] or self.at.get(self._n)
        self._n += 1
        record.uuid = str(self._n)  # its place among the API's messages, whatever is put between them
        return record

    def _agent_acts(self, blocks: list[dict[str, Any]]) -> list[Act]:
        acts: list[Act] = []
        for block in blocks:
            kind = block.get("type")
            if kind == "tool_use":
                call = str(block.get("id") or f"{self._n}.{len(acts)}")
                acts += self._call(call, str(block.get("name") or ""), block.get("input") or {})
            elif kind in ("thinking", "reasoning"):
                acts.append(Thinking(as_text(block.get("thinking") or block.get("text") or block.get("summary"))))
            else:
                acts += self._said(_text(block), len(acts))
        return acts or [AgentText("")]

    def _said(self, text: str, n_before: int) -> list[Act]:
        """A text with XML calls in it."""
        acts: list[Act] = []
        done = 0
        for call in _CALL.finditer(text):
            acts += _plain(text[done : call.start()])
            fields = {field[1]: field[2] for field in _FIELD.finditer(call[2])}
            acts += self._call(f"{self._n}.{n_before + len(acts)}", call[1], fields or call[2].strip())
            done = call.end()
        return acts + _plain(text[done:])

    def _call(self, call_id: str, name: str, arguments: Any) -> list[Act]:
        """A call; what it says to the person is also the agent's text."""
        spoken = arguments.get(_SPOKEN.get(name, "")) if isinstance(arguments, dict) else None
        if isinstance(spoken, str) and spoken:
            self._spoken.add(call_id)
            return [AgentText(spoken)]
        self._calls.append((call_id, name))
        return [ToolUse(call_id, name, arguments)]

    def _user_acts(self, blocks: list[dict[str, Any]]) -> list[Act]:
        results: list[tuple[str, list[str]]] = []
        typed: list[str] = []
        has_image = running = False
        for block in blocks:
            if block.get("type") == "tool_result":
                text = _DETAILS.sub("", text_of(block.get("content")))
                call = str(block.get("tool_use_id") or "")
                results.append((_ANSWER if call in self._spoken else call, [text]))
                typed += _typed_in(text)
                running = False
                continue
            has_image |= block.get("type") in ("image", "image_url")
            text = _DETAILS.sub("", _text(block)).strip()
            begun = _RESULT.match(text)
            if begun:
                call = _ANSWER if begun[1] in _SPOKEN else self._answered(begun[1])
                results.append((call, [text[begun.end() :]]))
                running = True
            elif running and text and not text.startswith(_INJECTED):
                results[-1][1].append(text)
            else:
                typed += _typed(text)
                continue
            typed += _typed_in(results[-1][1][-1])
        acts: list[Act] = []
        for call, texts in results:
            if call != _ANSWER:
                acts.append(ToolResult(call, "\n".join(t for t in texts if t.strip())))
        acts += merge_prompts([act for text in typed for act in user_acts(text)])
        if has_image and not acts:
            acts.append(Prompt("", unanswered="empty"))
        return acts or [Skip("injected")]

    def _answered(self, tool: str) -> str:
        """The id of the oldest open call of a tool."""
        for open_call in self._calls:
            if open_call[1] == tool:
                self._calls.remove(open_call)
                return open_call[0]
        return ""


def _text(block: dict[str, Any]) -> str:
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _plain(text: str) -> list[Act]:
    """Text of the agent around calls, thoughts apart."""
    thoughts: list[Act] = [Thinking(thought.strip()) for thought in _THOUGHT.findall(text)]
    said = _THOUGHT.sub("", text).strip()
    return thoughts + ([AgentText(said)] if said else [])


def _typed(text: str) -> list[str]:
    """What a person typed in a text that is no result."""
    found = [match[2] for match in _TYPED.finditer(text)]
    if found:
        return found
    return [] if not text or text.startswith(_INJECTED) else [text]


def _typed_in(text: str) -> list[str]:
    """What a person typed in a result: a file that is read may hold the same tags, so they must end it."""
    body = text.strip()
    if not body.endswith(("</feedback>", "</user_message>", "</answer>")):
        return []
    if not body.startswith(("<feedback>", "<user_message>", "<answer>", "The user", "[The user", "Command")):
        return []
    return [match[2] for match in _TYPED.finditer(body)]
