"""Aider histories, SpecStory renderings, console copies: sessions, anchors, times, tools, the traps of each format."""

from __future__ import annotations

from pathlib import Path

from backfill.sources import UnitResult, detect
from backfill.types import ToolCall
from tests.claude_lines import read, texts
from tests.sources.markdown_files import AIDER, CONSOLE, OLD, SPECSTORY, UUID

HISTORY = "shop/.aider.chat.history.md"
STARTED = "# aider chat started at 2026-03-01 10:00:00\n\n"
US = 1_000_000
MARCH_1_10_UTC = 1772359200 * US


def aider(tmp_path: Path, text: str, **config: object) -> UnitResult:
    return read(tmp_path, text.encode(), source=HISTORY, **config)


def specstory(tmp_path: Path, text: str, source: str = "shop/.specstory/history/a.md") -> UnitResult:
    return read(tmp_path, text.encode(), source=source)


def tools(result: UnitResult) -> list[ToolCall]:
    return [tool for row in result.exchanges for tool in row.tools]


def reasons(result: UnitResult) -> list[str]:
    return [row.reason or row.state for row in result.ledger]


def test_aider_places_say_session_anchor_and_local_time(tmp_path: Path) -> None:
    result = aider(tmp_path, AIDER, assume_tz="Europe/Berlin")
    assert [(o.session_id, o.anchor, o.started_at, o.tz_assumed, o.model) for o in result.occurrences] == [
        (f"{HISTORY}#1", "3", MARCH_1_10_UTC - 3600 * US, True, "sonnet-test"),
        (f"{HISTORY}#1", "8", MARCH_1_10_UTC - 3600 * US, True, "sonnet-test"),
        (f"{HISTORY}#2", "2", MARCH_1_10_UTC + 1800 * US, True, ""),
    ]
    assert result.sessions == 2
    assert reasons(result)[:2] == ["no_prompt", "meta"]


def test_aider_edits_are_calls_that_name_their_files(tmp_path: Path) -> None:
    edits = [tool for tool in tools(aider(tmp_path, AIDER)) if tool.name]
    assert [(tool.name, tool.paths, tool.actions) for tool in edits] == [("edit", ("src/cache.py",), ("edited",))]


def test_aider_console_lines_never_answer_a_prompt(tmp_path: Path) -> None:
    retried = (
        STARTED + "#### go  \n> litellm.APIError: down  \n> Retrying in 0.2 seconds...  \n\n#### go on  \n\nDone.\n"
    )
    assert texts(aider(tmp_path, retried)) == [("go\n\ngo on", "Done.")]


def test_an_aider_command_opens_an_exchange_only_if_it_is_answered(tmp_path: Path) -> None:
    text = STARTED + "#### /add a.py  \n> Added a.py  \n\n#### /ask why?  \n\nBecause.\n\n#### !ls  \n> a.py  \n"
    result = aider(tmp_path, text)
    assert texts(result) == [("/ask why?", "Because.")]
    assert "command" in reasons(result)


def test_a_path_at_the_beginning_of_an_aider_prompt_is_no_command(tmp_path: Path) -> None:
    assert texts(aider(tmp_path, STARTED + "#### /etc/hosts is wrong  \n")) == [("/etc/hosts is wrong", "")]


def test_aider_headings_of_an_answer_stay_in_it(tmp_path: Path) -> None:
    answer = "Two parts.\n\n#### `Reader` class\n\n> quoted\n\n# aider chat started at noon\n\nEnd."
    text = f"{STARTED}#### explain  \n\n{answer}\n"
    assert texts(aider(tmp_path, text)) == [("explain", answer)]


def test_an_aider_file_without_trailing_spaces_is_read_by_its_blank_lines(tmp_path: Path) -> None:
    text = STARTED + "#### inspect the history\n\nIt is readable.\n\n#### thanks\n"
    assert texts(aider(tmp_path, text)) == [("inspect the history", "It is readable."), ("thanks", "")]


def test_an_aider_mark_that_is_still_being_written_is_pending(tmp_path: Path) -> None:
    result = aider(tmp_path, STARTED + "> Aider v0.80  \n\n#### go  \n\nYes.\n\n#### and th")
    assert texts(result) == [("go", "Yes.")]
    assert reasons(result)[-1] == "pending"


def test_aider_is_not_claimed_where_its_marks_are_only_spoken_of() -> None:
    assert detect(b"# Recording\n\nRun `# aider chat started at 2026-03-01 10:00:00` once.\n", "x.md") is None
    assert detect(b'{"text": "# aider chat started at 2026-03-01 10:00:00"}\n', "x.md") is None
    assert detect(b"> quote\n\n#### heading\n", ".aider.chat.history.md") is None


def test_specstory_places_say_session_sub_agent_time_and_model(tmp_path: Path) -> None:
    result = specstory(tmp_path, SPECSTORY)
    nine = 1772442000 * US
    assert [(o.session_id, o.parent_session, o.anchor, o.started_at, o.model, o.tz_assumed) for o in
            sorted(result.occurrences, key=lambda o: o.byte_start)] == [
        (UUID, "", "2", nine, "opus-test", False),
        (f"{UUID}#sidechain-1", UUID, "1", nine + 20 * US, "haiku-test", False),
        (UUID, "", "7", nine + 360 * US, "opus-test", False),
    ]  # fmt: skip
    assert reasons(result).count("interrupted") == 1
    assert reasons(result).count("api_error") == 1


def test_specstory_tools_are_calls_with_results(tmp_path: Path) -> None:
    block = (
        '<tool-use data-tool-type="{}" data-tool-name="{}"><details>\n<summary>Tool use: **{}**{}</summary>\n{}'
        "</details></tool-use>\n\n"
    )
    body = "".join((
        block.format("shell", "Bash", "Bash", "", "\n```bash\nnpm test\n```\n\n```text\n42 passing\n```\n"),
        block.format("read", "Read", "Read", "", "Read file: `./src/a.ts`\n"),
        block.format("write", "Edit", "Edit", " `src/b.ts`", "\n```diff\n+x\n```\n"),
        block.format("search", "Grep", "Grep", "", " path `src` pattern `lock`\n\n```text\nNo files found\n```\n"),
    ))  # fmt: skip
    result = specstory(tmp_path, SPECSTORY + f"\n_**Agent (m 2026-03-02 09:07:00Z)**_\n\n{body}")
    assert [(t.name, t.input, t.head, t.paths) for t in tools(result)][-4:] == [
        ("Bash", "npm test", "42 passing", ()),
        ("Read", '{"file_path":"./src/a.ts"}', "", ("src/a.ts",)),
        ("Edit", '{"file_path":"src/b.ts"}', "+x", ("src/b.ts",)),
        ("Grep", "path `src` pattern `lock`", "No files found", ()),
    ]


def test_a_fence_inside_a_tool_output_does_not_hide_the_turns_after_it(tmp_path: Path) -> None:
    open_fence = (
        '<tool-use data-tool-type="generic" data-tool-name="Task"><details>\n<summary>Tool use: **Task**</summary>\n'
        "```text\nSee:\n```go\nx\n```\nmore\n```\n</details></tool-use>\n\n"
    )
    later = "_**User (2026-03-02 09:10:00Z)**_\n\nthanks\n"
    result = specstory(tmp_path, SPECSTORY + f"\n_**Agent (m 2026-03-02 09:07:00Z)**_\n\n{open_fence}{later}")
    assert texts(result)[-1] == ("thanks", "")


def test_the_same_session_under_two_names_is_one_session(tmp_path: Path) -> None:
    first = specstory(tmp_path, SPECSTORY, "a/.specstory/history/2026-03-02_09-00-00Z.md")
    second = specstory(tmp_path, SPECSTORY, "b/2026-03-02_09-00-00Z-why.md")
    assert first.exchanges == second.exchanges
    keys = [{(o.agent, o.session_id, o.anchor, o.part) for o in r.occurrences} for r in (first, second)]
    assert keys[0] == keys[1]


def test_old_specstory_has_a_title_and_a_local_time(tmp_path: Path) -> None:
    result = read(tmp_path, OLD.encode(), source="shop/.specstory/history/d.md", assume_tz="America/New_York")
    first = result.occurrences[0]
    assert (first.session_id, first.title, first.project) == (
        "shop/.specstory/history/d.md",
        "Parser for dates",
        "shop",
    )
    assert (first.started_at, first.tz_assumed) == (1745782004 * US, True)
    assert result.occurrences[1].started_at is None


def test_crlf_escapes_and_nul_in_a_rendering_are_read(tmp_path: Path) -> None:
    crlf = SPECSTORY.replace("\n", "\r\n").replace("The lock was stale.", "The \x1b[1mlock\x1b[0m\0 was\u2028stale.")
    result = specstory(tmp_path, crlf)
    assert [user for user, _ in texts(result)] == [user for user, _ in texts(specstory(tmp_path, SPECSTORY))]
    assert texts(result)[0][1].endswith("The \x1b[1mlock\x1b[0m\0 was\u2028stale.")


def test_renderings_without_a_turn_yield_nothing_and_are_accounted_for(tmp_path: Path) -> None:
    head = SPECSTORY[: SPECSTORY.index("_**User")]
    assert reasons(specstory(tmp_path, head)) == ["meta"]
    assert reasons(specstory(tmp_path, "## SpecStory\n")) == ["not_transcript"]


def test_a_rendering_is_claimed_by_its_comment_not_by_its_name() -> None:
    body = SPECSTORY.partition("\n\n")[2].replace("# 2026", "## 2026", 1).encode()
    assert detect(body, "x.txt") is not None
    assert detect(b"# Notes\n\n_**User**_\n\nhi\n", ".specstory/history/a.md") is None


def console(tmp_path: Path, text: str) -> UnitResult:
    return read(tmp_path, text.encode(), source="shop/diary/day-003.md")


def test_a_console_copy_says_session_and_folder(tmp_path: Path) -> None:
    twice = console(tmp_path, CONSOLE + CONSOLE)
    places = sorted(twice.occurrences, key=lambda o: o.byte_start)
    assert [(o.session_id.partition("#")[2], o.anchor, o.cwd, o.started_at) for o in places] == [
        ("0", "4", "/home/ana/shop", None),
        ("0", "14", "/home/ana/shop", None),
        ("1", "3", "/home/ana/shop", None),
        ("1", "13", "/home/ana/shop", None),
    ]


def test_console_tools_meet_their_results(tmp_path: Path) -> None:
    assert [(t.name, t.input, t.paths, t.head) for t in tools(console(tmp_path, CONSOLE))] == [
        (
            "Bash",
            "make build --mark-command",
            (),
            "Error: mark-result\n   > red\n   … +7 lines (ctrl+r to expand)",
        ),
        ("Edit", '{"file_path":"lock.toml"}', ("lock.toml",), "Updated lock.toml with 1 addition"),
        ("", "", (), "Total cost: $0.02 mark-cost"),
        ("", "", (), "Interrupted by user"),
    ]


def test_a_text_that_only_quotes_is_no_console_copy() -> None:
    assert detect(b"# Notes\n\n> quoted\n\n- item\n", "a.md") is None
    assert detect("> one\n\n⏺ two\n".encode(), "a.md") is None


def test_an_aider_edit_answers_a_command_together_with_what_the_console_says_of_it(tmp_path: Path) -> None:
    text = STARTED + "#### go  \n\nDone.\n\n#### /code fix it  \n> Tokens: 1k  \n> Applied edit to a.py  \n"
    result = aider(tmp_path, text)
    assert texts(result) == [("go", "Done."), ("/code fix it", "")]
    assert [(t.name, t.paths) for t in result.exchanges[1].tools] == [("edit", ("a.py",)), ("", ())]
    assert "Tokens: 1k" in result.exchanges[1].tools[1].head


def test_specstory_text_between_a_command_and_its_output_is_kept(tmp_path: Path) -> None:
    text = SPECSTORY.replace("`make build --mark-command`\n", "`make build --mark-command`\n\nkept before the fence\n")
    assert text != SPECSTORY
    (tool,) = specstory(tmp_path, text).exchanges[0].tools
    assert tool.input == "make build --mark-command"
    assert tool.head.startswith("kept before the fence")


def test_a_separator_of_specstory_that_is_still_being_written_is_no_text(tmp_path: Path) -> None:
    for torn in ("-", "--", "---"):
        result = specstory(tmp_path, SPECSTORY + f"\n_**User (2026-03-02 10:00:00Z)**_\n\n{torn}")
        assert not any(user.strip() == torn for user, _ in texts(result))
