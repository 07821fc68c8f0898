"""One whole fixture of each command-line agent's own format, as a few lines of JSON."""

from __future__ import annotations

import json
from typing import Any

from tests.sources.contract import Case

CODEX_SESSION = "019a0000-1111-7000-8000-00000000c0de"


def jsonl(*values: Any) -> bytes:
    """One value per line; bytes are lines as they are."""
    return b"".join(v if isinstance(v, bytes) else json.dumps(v, ensure_ascii=False).encode() + b"\n" for v in values)


# Codex


def codex(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    """A line of a rollout."""
    return {"timestamp": f"2026-02-03T04:05:{second:02d}.000Z", "type": kind, "payload": payload}


def codex_message(role: str, text: str, second: int) -> dict[str, Any]:
    """A message item."""
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", second, type="message", role=role, content=[{"type": kind, "text": text}])


def codex_event(kind: str, message: str, second: int) -> dict[str, Any]:
    """An event with a message."""
    return codex("event_msg", second, type=kind, message=message)


CODEX_META = codex(
    "session_meta", 0, id=CODEX_SESSION, cwd="/home/ana/shop", cli_version="0.50.0", git={"branch": "main"}
)
CODEX_CASE = Case(
    "codex",
    "codex",
    jsonl(
        CODEX_META,
        codex_message("user", "<environment_context>\n<cwd>/home/ana/shop</cwd>\n</environment_context>", 1),
        codex_event("user_message", "Why does the nightly export stall?", 2),
        codex("turn_context", 2, cwd="/home/ana/shop", model="gpt-5"),
        codex_message("user", "Why does the nightly export stall?", 2),
        codex("event_msg", 3, type="agent_reasoning", text="thought aloud on screen"),
        codex("response_item", 3, type="reasoning", summary=[{"type": "summary_text", "text": "Look at the lock."}]),
        codex(
            "response_item",
            4,
            type="function_call",
            name="shell",
            call_id="c1",
            arguments='{"command":["bash","-lc","cat export.py"]}',
        ),
        codex("event_msg", 4, type="token_count", info=None),
        codex(
            "response_item",
            5,
            type="function_call_output",
            call_id="c1",
            output='{"output":"lock = flock(fd)","metadata":{"exit_code":0}}',
        ),
        codex_event("agent_message", "It waits for the file lock.", 6),
        codex_message("assistant", "It waits for the file lock.", 6),
        codex_event("user_message", "Only the event says: release it.", 7),
        codex_message("assistant", "Released in a finally block.", 8),
        codex("event_msg", 9, type="turn_aborted", reason="interrupted"),
        codex_event("user_message", "last prompt, event alone", 10),
    ),
    (
        ("Why does the nightly export stall?", "It waits for the file lock."),
        ("Only the event says: release it.", "Released in a finally block."),
        ("last prompt, event alone", ""),
    ),
    ("Look at the lock.", "cat export.py", "lock = flock(fd)", "Only the event says", "last prompt, event alone"),
    ("thought aloud on screen", "environment_context"),
)

# Gemini CLI


def gemini(ident: str, kind: str, second: int, content: Any, **fields: Any) -> dict[str, Any]:
    """A message of a chat."""
    return {"id": ident, "timestamp": f"2026-02-03T04:05:{second:02d}.000Z", "type": kind, "content": content} | fields


GEMINI_HEADER = {"sessionId": "gem-1", "projectHash": "ab" * 32, "startTime": "2026-02-03T04:05:00.000Z"}
GEMINI_CALL = {
    "id": "t1",
    "name": "read_file",
    "args": {"file_path": "rates.csv"},
    "result": [{"functionResponse": {"id": "t1", "name": "read_file", "response": {"output": "eur;1.08"}}}],
}
GEMINI_THOUGHT = {"subject": "Rates", "description": "The header is missing.", "timestamp": "2026-02-03T04:05:02.000Z"}
GEMINI_MESSAGES = [
    gemini("m1", "user", 1, [{"text": "Which rate is wrong?"}]),
    gemini("m2", "gemini", 2, "The euro.", thoughts=[GEMINI_THOUGHT], toolCalls=[GEMINI_CALL], model="gemini-3-pro"),
    gemini("m3", "warning", 3, "Hook failed, says the tool."),
    gemini("m4", "user", 4, "Fix it"),
    gemini("m5", "gemini", 5, [{"text": "Fixed in rates.csv."}]),
]
_GEMINI_SAID = ("Which rate is wrong?", "The header is missing.", "eur;1.08", "Fix it", "Fixed in rates.csv.")
_GEMINI_EXCHANGES = (("Which rate is wrong?", "The euro."), ("Fix it", "Fixed in rates.csv."))
GEMINI_CASES = (
    Case(
        "gemini_cli_document",
        "gemini_cli",
        json.dumps({**GEMINI_HEADER, "messages": GEMINI_MESSAGES}, indent=2).encode(),
        _GEMINI_EXCHANGES,
        _GEMINI_SAID,
        ("Hook failed",),
        appends=False,
    ),
    Case(
        "gemini_cli_patches",
        "gemini_cli",
        jsonl(
            {**GEMINI_HEADER, "kind": "main"},
            GEMINI_MESSAGES[0],
            {"$set": {"lastUpdated": "2026-02-03T04:05:01.500Z"}},
            gemini("m2", "gemini", 2, "", toolCalls=[{"id": "t1", "name": "read_file", "args": {"file_path": "r"}}]),
            *GEMINI_MESSAGES[1:],
            gemini("m6", "user", 6, "An idea that was taken back"),
            {"$set": {"messages": [*GEMINI_MESSAGES, gemini("m7", "user", 8, "Ship it")], "summary": "Rates"}},
            gemini("m8", "gemini", 9, "Shipped."),
        ),
        (
            ("An idea that was taken back", ""),
            *_GEMINI_EXCHANGES,
            ("Ship it", "Shipped."),
        ),
        ("An idea that was taken back", "Ship it", "Shipped."),
    ),
    Case(
        "gemini_cli_stream",
        "gemini_cli",
        jsonl(
            {"type": "init", "timestamp": "2026-02-03T04:05:00.000Z", "session_id": "gem-2", "model": "gemini-3-pro"},
            {"type": "message", "timestamp": "2026-02-03T04:05:01.000Z", "role": "user", "content": "Count the rates"},
            {
                "type": "tool_use",
                "timestamp": "2026-02-03T04:05:02.000Z",
                "tool_name": "shell",
                "tool_id": "s1",
                "parameters": {"command": "wc -l rates.csv"},
            },
            {
                "type": "tool_result",
                "timestamp": "2026-02-03T04:05:03.000Z",
                "tool_id": "s1",
                "status": "success",
                "output": "41 rates.csv",
            },
            {
                "type": "message",
                "timestamp": "2026-02-03T04:05:04.000Z",
                "role": "assistant",
                "content": "There are ",
                "delta": True,
            },
            {
                "type": "message",
                "timestamp": "2026-02-03T04:05:05.000Z",
                "role": "assistant",
                "content": "41 of them.",
                "delta": True,
            },
            {"type": "result", "timestamp": "2026-02-03T04:05:06.000Z", "status": "success", "stats": {}},
        ),
        (("Count the rates", "There are 41 of them."),),
        ("Count the rates", "wc -l rates.csv", "41 rates.csv", "There are ", "41 of them."),
    ),
)

# Qwen Code


def qwen(n: int, kind: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    """A record in the envelope, child of the record before it."""
    line: dict[str, Any] = {
        "uuid": f"q{n}",
        "parentUuid": f"q{n - 1}" if n > 1 else None,
        "sessionId": "qwen-1",
        "type": kind,
        "timestamp": f"2026-02-03T04:05:{n:02d}.000Z",
        "cwd": "/home/ana/shop",
        "gitBranch": "main",
    }
    if parts:
        line["message"] = {"role": "model" if kind == "assistant" else "user", "parts": list(parts)}
    return line | fields


QWEN_CASE = Case(
    "qwen_code",
    "qwen_code",
    jsonl(
        qwen(
            1,
            "user",
            {"text": "Sort the imports"},
            {"text": "<hook>added by a hook</hook>"},
            systemPayload={"displayText": "Sort the imports"},
        ),
        qwen(
            2,
            "assistant",
            {"text": "isort would do.", "thought": True},
            {"functionCall": {"id": "f1", "name": "run_shell_command", "args": {"command": "isort shop"}}},
            model="qwen3-coder",
        ),
        qwen(3, "tool_result", {"functionResponse": {"id": "f1", "response": {"output": "Fixing cart.py"}}}),
        qwen(4, "assistant", {"text": "Sorted."}),
        qwen(5, "system", subtype="ui_telemetry", systemPayload={"uiEvent": {"event.name": "api_response"}}),
        qwen(6, "user", {"text": "a job ended in the background"}, subtype="notification"),
        qwen(
            7,
            "system",
            subtype="chat_compression",
            systemPayload={"compressedHistory": [{"role": "user", "parts": [{"text": "summary of all"}]}]},
        ),
        qwen(
            8,
            "system",
            subtype="slash_command",
            systemPayload={"phase": "invocation", "rawCommand": "/compress", "sentToModel": False},
        ),
        qwen(9, "user", {"text": "Now the tests"}, provenance="real_user"),
        qwen(10, "assistant", {"text": "Thinking first.", "thought": True}),
        qwen(10, "assistant", {"text": "Tests sorted too."}, parentUuid="q9"),
    ),
    (("Sort the imports", "Sorted."), ("Now the tests", "Tests sorted too.")),
    ("isort would do.", "isort shop", "Fixing cart.py", "Sorted.", "Now the tests", "Thinking first.", "Tests sorted"),
    ("added by a hook", "in the background", "summary of all"),
)

# Copilot CLI


def copilot(n: int, kind: str, **data: Any) -> dict[str, Any]:
    """An event."""
    return {"type": kind, "data": data, "id": f"e{n}", "timestamp": f"2026-02-03T04:05:{n:02d}.000Z", "parentId": None}


COPILOT_CASE = Case(
    "copilot_cli",
    "copilot_cli",
    jsonl(
        copilot(1, "session.start", sessionId="cop-1", version=1, context={"cwd": "/home/ana/shop", "branch": "main"}),
        copilot(2, "session.model_change", newModel="gpt-5-mini"),
        copilot(3, "system.message", content="You are the CLI.", role="system"),
        copilot(4, "user.message", content="Why is the pool empty?", transformedContent="<context/>sent, not typed"),
        copilot(
            5,
            "assistant.message",
            content="Looking.",
            reasoningText="Rows may leak.",
            toolRequests=[
                {"toolCallId": "c1", "name": "bash", "arguments": '{"command":"grep rows db.go"}'},
                {"toolCallId": "c2", "name": "task", "arguments": {"prompt": "Read the poller"}},
            ],
        ),
        copilot(6, "tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "copy of it"}),
        copilot(7, "tool.execution_complete", toolCallId="c1", success=True, result={"content": "rows, err := q()"}),
        copilot(8, "subagent.started", toolCallId="c2", agentName="explore"),
        copilot(9, "assistant.message", parentToolCallId="c2", content="The poller never closes.", toolRequests=[]),
        copilot(10, "assistant.message", content="Rows leak; close them.", toolRequests=[]),
        copilot(11, "abort", reason="user"),
        copilot(12, "user.message", content="skill body, injected", source="skill-review"),
        copilot(13, "user.message", content="Thanks, commit it"),
    ),
    (
        ("Why is the pool empty?", "Looking.\n\nRows leak; close them."),
        ("Read the poller", "The poller never closes."),
        ("Thanks, commit it", ""),
    ),
    ("Why is the pool empty?", "Rows may leak.", "grep rows db.go", "rows, err := q()", "never closes", "commit it"),
    ("sent, not typed", "copy of it", "injected"),
)

# Kimi


def kimi(n: int, kind: str, **fields: Any) -> dict[str, Any]:
    """A line of the wire."""
    return {"type": kind, **fields, "time": 1_770_091_500_000 + 1000 * n}


def kimi_event(n: int, kind: str, step: str, **fields: Any) -> dict[str, Any]:
    """A loop event."""
    return kimi(n, "context.append_loop_event", event={"type": kind, "stepUuid": step, "turnId": "0", **fields})


def kimi_message(n: int, text: str, kind: str = "user") -> dict[str, Any]:
    """A message that the user, or something else, put into the context."""
    message = {"role": "user", "content": [{"type": "text", "text": text}], "toolCalls": [], "origin": {"kind": kind}}
    return kimi(n, "context.append_message", message=message)


def kimi_prompt(n: int, text: str, kind: str = "turn.prompt") -> dict[str, Any]:
    """A prompt as it was typed."""
    return kimi(n, kind, input=[{"type": "text", "text": text}], origin={"kind": "user"})


KIMI_CASE = Case(
    "kimi",
    "kimi",
    jsonl(
        {"type": "metadata", "protocol_version": "1.4", "created_at": 1_770_091_500_000},
        kimi(1, "config.update", cwd="/home/ana/shop", modelAlias="kimi-k2", systemPrompt="You are Kimi."),
        kimi_prompt(2, "Is the key cache stale?"),
        kimi_message(2, "Is the key cache stale?"),
        kimi_event(3, "content.part", "s1", part={"type": "think", "think": "Rotation matters."}),
        kimi_event(4, "tool.call", "s1", toolCallId="k1", name="Grep", args={"pattern": "rotate"}),
        kimi_event(5, "tool.result", "", toolCallId="k1", result={"output": "keys.py:7"}),
        kimi_prompt(6, "also look at the tests", "turn.steer"),
        kimi_event(7, "content.part", "s2", part={"type": "text", "text": "Yes: it keeps "}),
        kimi_event(8, "content.part", "s2", part={"type": "text", "text": "the old key."}),
        kimi_message(9, "a cron job woke the agent", "system_trigger"),
        kimi(10, "turn.cancel"),
        kimi_prompt(11, "Never became a message"),
        kimi_event(12, "content.part", "s3", part={"type": "text", "text": "Answered all the same."}),
    ),
    (
        ("Is the key cache stale?\n\nalso look at the tests", "Yes: it keeps the old key."),
        ("Never became a message", "Answered all the same."),
    ),
    ("Rotation matters.", "keys.py:7", "also look at the tests", "Yes: it keeps ", "Never became", "all the same."),
    ("a cron job woke",),
    source="proj/kimi-1/agents/main/wire.jsonl",
)

# Trees and logs of smaller agents


def pi(ident: str, parent: str | None, role: str, text: str, *blocks: Any, **fields: Any) -> dict[str, Any]:
    """A message of a tree."""
    content = [*([{"type": "text", "text": text}] if text else []), *blocks]
    return {
        "type": "message",
        "id": ident,
        "parentId": parent,
        "timestamp": "2026-02-03T04:05:06.000Z",
        "message": {"role": role, "content": content, **fields},
    }


PI_SESSION = "019e0000-0000-7000-8000-0000000000aa"
PI_HEADER = {
    "type": "session",
    "version": 3,
    "id": PI_SESSION,
    "timestamp": "2026-02-03T04:05:00Z",
    "cwd": "/home/ana/shop",
}
PI_CASE = Case(
    "pi",
    "pi",
    jsonl(
        PI_HEADER,
        {"type": "model_change", "id": "mc", "parentId": None, "timestamp": "2026-02-03T04:05:01Z", "modelId": "glm-5"},
        pi("u1", "mc", "user", "Which parser is faster?"),
        pi(
            "a1",
            "u1",
            "assistant",
            "Measuring.",
            {"type": "thinking", "thinking": "Run both."},
            {"type": "toolCall", "id": "tc1", "name": "bash", "arguments": {"command": "bench all"}},
        ),
        pi("r1", "a1", "toolResult", "orjson 723 MB/s", toolCallId="tc1", toolName="bash"),
        pi("a2", "r1", "assistant", "orjson wins."),
        pi("u2", "a2", "user", "Use it everywhere"),
        pi("a3", "u2", "assistant", "Replaced."),
        {
            "type": "branch_summary",
            "id": "bs",
            "parentId": "a2",
            "timestamp": "2026-02-03T04:05:07Z",
            "summary": "told again",
        },
        pi("u3", "bs", "user", "Only in the hot loop"),
        pi("a4", "u3", "assistant", "Replaced there."),
        pi("a5", "r1", "assistant", "msgspec wins, on second thought."),
        pi("u4", "a5", "user", "And memory?"),
        {
            "type": "compaction",
            "id": "c1",
            "parentId": "u4",
            "timestamp": "2026-02-03T04:05:08Z",
            "summary": "all of it",
        },
        pi("a6", "c1", "assistant", "Half of it."),
    ),
    (
        ("Which parser is faster?", "Measuring.\n\norjson wins."),
        ("Use it everywhere", "Replaced."),
        ("Only in the hot loop", "Replaced there."),
        ("Which parser is faster?", "msgspec wins, on second thought."),
        ("And memory?", "Half of it."),
    ),
    (
        "Run both.",
        "bench all",
        "orjson 723 MB/s",
        "Use it everywhere",
        "Replaced there.",
        "on second thought",
        "Half of it",
    ),
    ("told again", "all of it"),
)


def droid(ident: str, role: str, *blocks: Any) -> dict[str, Any]:
    """A message of a session file."""
    return {
        "type": "message",
        "id": ident,
        "timestamp": "2026-02-03T04:05:06.000Z",
        "message": {"role": role, "content": list(blocks)},
    }


DROID_CASES = (
    Case(
        "droid",
        "droid",
        jsonl(
            {"type": "session_start", "id": "droid-1", "title": "Port the menu", "cwd": "/home/ana/shop"},
            droid(
                "m1",
                "user",
                {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
                {"type": "text", "text": "Port the menu"},
            ),
            droid(
                "m2",
                "assistant",
                {"type": "thinking", "thinking": "Small file."},
                {"type": "tool_use", "id": "d1", "name": "Read", "input": {"file_path": "menu.py"}},
            ),
            droid("m3", "user", {"type": "tool_result", "tool_use_id": "d1", "content": "MENU = []"}),
            {"type": "todo_state", "todos": "not said"},
            droid("m4", "assistant", {"type": "text", "text": "Ported."}),
        ),
        (("Port the menu", "Ported."),),
        ("Small file.", "menu.py", "MENU = []", "Ported."),
        ("be brief", "not said"),
    ),
    Case(
        "droid_stream",
        "droid",
        jsonl(
            {
                "type": "system",
                "subtype": "init",
                "sessionId": "droid-2",
                "timestamp": 1_770_091_500_000,
                "model": "d-1",
            },
            {
                "type": "message",
                "sessionId": "droid-2",
                "timestamp": 1_770_091_501_000,
                "role": "user",
                "id": "m1",
                "text": "<system-reminder>be safe</system-reminder>\n\nList the menu",
            },
            {
                "type": "tool_call",
                "sessionId": "droid-2",
                "timestamp": 1_770_091_502_000,
                "id": "c1",
                "toolName": "Execute",
                "parameters": {"command": "ls menu"},
            },
            {
                "type": "tool_result",
                "sessionId": "droid-2",
                "timestamp": 1_770_091_503_000,
                "id": "c1",
                "value": "soup",
            },
            {"type": "completion", "sessionId": "droid-2", "timestamp": 1_770_091_504_000, "finalText": "One soup."},
        ),
        (("List the menu", "One soup."),),
        ("List the menu", "ls menu", "soup", "One soup."),
        ("be safe",),
    ),
)

GROK_CASE = Case(
    "grok",
    "grok",
    jsonl(
        {"type": "system", "content": "You are Grok."},
        {
            "type": "user",
            "content": [{"type": "text", "text": "<user_info>\nWorkspace Path: /home/ana/shop\n</user_info>"}],
            "synthetic_reason": "environment_context",
        },
        {
            "type": "user",
            "content": [{"type": "text", "text": "What does the script print?"}],
            "prompt_index": 0,
            "prior_turn_interrupt": "mid_turn_abort",
        },
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "Run it."}]},
        {
            "type": "assistant",
            "content": "Running it.",
            "model_id": "grok-4.5",
            "tool_calls": [{"id": "g1", "name": "run_terminal_cmd", "arguments": '{"command":"python3 say.py"}'}],
        },
        {"type": "tool_result", "tool_call_id": "g1", "content": "good morning"},
        {"type": "assistant", "content": "A greeting.", "model_id": "grok-4.5"},
        {
            "type": "user",
            "content": [
                {"type": "image", "url": "data:image/png;base64,QUJD"},
                {"type": "text", "text": "And this picture?"},
            ],
            "prompt_index": 1,
        },
    ),
    (("What does the script print?", "Running it.\n\nA greeting."), ("And this picture?", "")),
    ("Run it.", "python3 say.py", "good morning", "A greeting.", "And this picture?"),
    ("You are Grok", "Workspace Path", "QUJD"),
    source="grok/sessions/shop/grok-1/chat_history.jsonl",
)


def deepseek(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    """An event."""
    return {"type": kind, "seq": seq, "time": 1_770_091_500_000 + seq * 1000, "data": data}


DEEPSEEK_CASE = Case(
    "deepseek",
    "deepseek",
    jsonl(
        {"type": "session", "version": 0, "id": "ds-1", "createdAt": 1_770_091_500_000, "cwd": "/home/ana/shop"},
        deepseek(5, "session/title", title="Pool size"),
        deepseek(
            3, "user/message", content=[{"type": "text", "text": "How large is the pool?"}], source={"kind": "user"}
        ),
        deepseek(
            4, "user/message", content=[{"type": "text", "text": "context by a plugin"}], source={"kind": "plugin"}
        ),
        deepseek(6, "assistant/chunk", chunk={"type": "text-delta", "text": "a piece on screen"}),
        {"type": "text-chunks", "seq0": 7, "data": {"texts": ["more pieces"]}},
        deepseek(
            9,
            "tool/result",
            message={
                "source": {"callId": "d1"},
                "content": [
                    {"type": "tool-result", "toolCallId": "d1", "content": [{"type": "text", "text": "pool_size = 40"}]}
                ],
            },
        ),
        deepseek(8, "tool/call", callId="d1", name="read", arguments='{"file_path":"pool.ini"}'),
        deepseek(
            10,
            "assistant/message",
            message={
                "role": "assistant",
                "content": [{"type": "reasoning", "text": "It is in the file."}, {"type": "text", "text": "Forty."}],
            },
        ),
        deepseek(
            13, "assistant/message", message={"role": "assistant", "content": [{"type": "text", "text": "Raised."}]}
        ),
        deepseek(12, "user/message", content=[{"type": "text", "text": "Raise it to fifty"}], source={"kind": "user"}),
        deepseek(14, "turn/end", turn=1),
    ),
    (("How large is the pool?", "Forty."), ("Raise it to fifty", "Raised.")),
    ("How large is the pool?", "pool_size = 40", "pool.ini", "It is in the file.", "Raised.", "Raise it to fifty"),
    ("context by a plugin", "a piece on screen", "more pieces"),
)


def step(index: int, source: str, kind: str, content: str, **fields: Any) -> dict[str, Any]:
    """A step of Antigravity."""
    return {
        "step_index": index,
        "source": source,
        "type": kind,
        "created_at": f"2026-02-03T04:05:{index:02d}Z",
        "content": content,
        **fields,
    }


ANTIGRAVITY_CASE = Case(
    "antigravity",
    "antigravity",
    jsonl(
        step(
            0,
            "USER_EXPLICIT",
            "USER_INPUT",
            "<USER_REQUEST>\nOpen the docs\n</USER_REQUEST>\n<ADDITIONAL_METADATA>local time</ADDITIONAL_METADATA>",
        ),
        step(1, "SYSTEM", "EPHEMERAL_MESSAGE", "a note of the system"),
        step(
            2,
            "MODEL",
            "PLANNER_RESPONSE",
            "Opening.",
            thinking="A browser will do.",
            tool_calls=[{"id": "n1", "name": "navigate", "args": {"url": "docs.example.com"}}],
        ),
        step(3, "MODEL", "BROWSER_NAVIGATE", "title: Docs"),
        step(4, "MODEL", "PLANNER_RESPONSE", "They are open."),
    ),
    (("Open the docs", "Opening.\n\nThey are open."),),
    ("Open the docs", "A browser will do.", "docs.example.com", "title: Docs", "They are open."),
    ("local time", "a note of the system"),
)


def muse(n: int, kind: str, **event: Any) -> dict[str, Any]:
    """An event of the log."""
    return {
        "id": f"rec-{n}",
        "stream": {"kind": "session", "id": "muse-1"},
        "sequence": n,
        "record_type": "event",
        "recorded_at": 1_770_091_500_000_000 + n * 1_000_000,
        "payload_type": "runtime.session",
        "payload": {"kind": "run", "event": {"kind": kind, **event}},
    }


MUSE_CASE = Case(
    "musecode",
    "musecode",
    jsonl(
        {
            **muse(1, ""),
            "payload_type": "runtime.session.metadata",
            "payload": {"kind": "metadata", "record": {"model_id": "muse-1.2", "workspace_root": "/home/ana/shop"}},
        },
        muse(2, "started", prompt="Add a sub() function"),
        muse(3, "context_block_diagnostic", text="never shown"),
        muse(
            4,
            "assistant_tool_calls_committed",
            tool_calls=[{"call_id": "w1", "name": "bash", "args": '{"command":"pytest calc"}'}],
        ),
        muse(5, "tool_result_batch_committed", results=[{"tool_call_id": "w1", "text": "2 passed"}]),
        muse(6, "assistant_message_committed", text="Added, tests pass."),
        muse(7, "terminal", terminal="completed"),
    ),
    (("Add a sub() function", "Added, tests pass."),),
    ("Add a sub() function", "pytest calc", "2 passed", "Added, tests pass."),
    ("never shown",),
)

# Copilot Chat


def chat(ident: str, text: str, *response: Any, **fields: Any) -> dict[str, Any]:
    """A request with its answer."""
    return {
        "requestId": ident,
        "message": {"text": text, "parts": []},
        "variableData": {"variables": [{"value": "a file that the editor attached"}]},
        "response": list(response),
        "timestamp": 1_770_091_500_000,
        "modelId": "copilot/gpt-5",
        **fields,
    }


CHAT_CALLS = {
    "metadata": {
        "toolCallRounds": [{"response": "", "toolCalls": [{"id": "t1", "name": "grep", "arguments": '{"q":"tax"}'}]}],
        "toolCallResults": {"t1": {"content": [{"value": "tax.py:4"}]}},
    }
}
CHAT_REQUESTS = [
    chat(
        "r1",
        "Where is the tax?",
        {"kind": "thinking", "value": "Search for it."},
        {"kind": "toolInvocationSerialized", "toolId": "grep", "toolCallId": "t1", "pastTenseMessage": "Searched"},
        {"value": "It is in "},
        {"kind": "inlineReference", "name": "tax.py", "inlineReference": {"path": "/home/ana/shop/tax.py"}},
        {"value": ", line 4."},
        result=CHAT_CALLS,
    ),
    chat("r2", "Raise it", result={}),
]
CHAT_CASES = (
    Case(
        "copilot_chat",
        "copilot_chat",
        json.dumps(
            {"responderUsername": "GitHub Copilot", "requests": CHAT_REQUESTS, "sessionId": "chat-1"}, indent=2
        ).encode(),
        (("Where is the tax?", "It is in tax.py, line 4."), ("Raise it", "")),
        ("Search for it.", "It is in ", "tax.py:4", "Raise it"),
        ("the editor attached",),
        appends=False,
    ),
    Case(
        "copilot_chat_log",
        "copilot_chat",
        jsonl(
            {"kind": 0, "v": {"version": 3, "sessionId": "chat-2", "requests": [CHAT_REQUESTS[0]]}},
            {"kind": 1, "k": ["inputState"], "v": "typed, not sent"},
            {"kind": 2, "k": ["requests"], "v": [chat("r2", "Raise it to nine")]},
            {"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "Raised to "}]},
            {"kind": 1, "k": ["requests", 1, "modelState"], "v": {"value": 1}},
            {"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "nine."}], "i": 1},
            {"kind": 1, "k": ["customTitle"], "v": "Taxes"},
            {"kind": 1, "k": ["requests", 0, "vote"], "v": 1},
            {"kind": 2, "k": ["requests"], "v": [chat("r3", "No, back to seven")], "i": 1},
            {"kind": 2, "k": ["requests", 1, "response"], "v": [{"value": "Seven it is."}]},
        ),
        (
            ("Where is the tax?", "It is in tax.py, line 4."),
            ("Raise it to nine", "Raised to nine."),
            ("No, back to seven", "Seven it is."),
        ),
        ("Search for it.", "Raise it to nine", "Raised to ", "nine.", "No, back to seven", "Seven it is."),
        ("typed, not sent",),
    ),
)

CASES: tuple[Case, ...] = (
    *CHAT_CASES,
    CODEX_CASE,
    *GEMINI_CASES,
    QWEN_CASE,
    COPILOT_CASE,
    KIMI_CASE,
    PI_CASE,
    *DROID_CASES,
    GROK_CASE,
    DEEPSEEK_CASE,
    ANTIGRAVITY_CASE,
    MUSE_CASE,
)
