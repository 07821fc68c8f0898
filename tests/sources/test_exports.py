"""Exports of chat sites: trees and their anchors, hidden messages, odd parts, attachments, sizes."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from backfill.ledger import check
from backfill.sources import UnitResult, detect
from backfill.types import Occurrence
from tests.claude_lines import read, texts
from tests.sources.export_files import CLAUDE_AI, conversation, forked, node

SOURCE = "export/conversations.json"


def export(tmp_path: Path, *conversations: Any) -> UnitResult:
    result = read(tmp_path, json.dumps(list(conversations)).encode(), source=SOURCE)
    size = (tmp_path / "unit").stat().st_size
    assert check(result.ledger, {SOURCE: size}, {e.exchange_id for e in result.exchanges}) == []
    return result


def prompts(result: UnitResult) -> list[str]:
    return [user for user, _ in texts(result)]


def by_anchor(result: UnitResult) -> dict[str, tuple[str, str, bytes | None]]:
    """(user_text, agent_text, prev_content_id) by anchor."""
    rows = {e.exchange_id: e for e in result.exchanges}
    found = ((o.anchor, rows[o.exchange_id]) for o in result.occurrences)
    return {anchor: (row.user_text, row.agent_text, row.prev_content_id) for anchor, row in found}


def content(result: UnitResult, anchor: str) -> bytes:
    rows = {e.exchange_id: e for e in result.exchanges}
    return next(rows[o.exchange_id].content_id for o in result.occurrences if o.anchor == anchor)


# ChatGPT


def test_every_path_of_the_tree_counts_and_the_shared_head_once(tmp_path: Path) -> None:
    result = export(tmp_path, forked())
    found = by_anchor(result)
    assert {anchor: row[:2] for anchor, row in found.items()} == {
        "q1": ("why is it slow? mark-q1", "The index is missing, mark-a1."),
        "a2": ("why is it slow? mark-q1", "The disk is slow, mark-a2."),
        "q2": ("add it, mark-add", "Added, mark-a3."),
        "q2b": ("drop it, mark-drop", "Dropped, mark-a3b."),
        "again": ("and now? mark-again\n\nso a table, mark-table", ""),
    }
    assert found["q1"][2] is None
    assert found["a2"][2] is None
    assert found["q2"][2] == found["q2b"][2] == content(result, "q1")
    assert found["again"][2] == content(result, "a2")


def test_an_answer_that_forks_in_its_middle_reads_whole_on_both_paths(tmp_path: Path) -> None:
    tree = conversation(
        node("r", None),
        node("q", "r", "user", "go"),
        node("a", "q", "assistant", "First."),
        node("b", "a", "assistant", "Then this."),
        node("c", "a", "assistant", "Or that."),
    )
    assert {k: v[:2] for k, v in by_anchor(export(tmp_path, tree)).items()} == {
        "q": ("go", "First.\n\nThen this."),
        "c": ("go", "First.\n\nOr that."),
    }


def test_an_edited_prompt_does_not_join_the_one_that_nobody_answered(tmp_path: Path) -> None:
    tree = conversation(
        node("r", None),
        node("q1", "r", "user", "go left"),
        node("q2", "r", "user", "go right"),
        node("a2", "q2", "assistant", "Right."),
    )
    assert texts(export(tmp_path, tree)) == [("go left", ""), ("go right", "Right.")]


def test_a_branch_below_an_unanswered_prompt_carries_it(tmp_path: Path) -> None:
    tree = conversation(
        node("r", None),
        node("q1", "r", "user", "context"),
        node("q2", "q1", "user", "left?"),
        node("a2", "q2", "assistant", "Left."),
        node("q3", "q1", "user", "right?"),
        node("a3", "q3", "assistant", "Right."),
    )
    assert texts(export(tmp_path, tree)) == [("context\n\nleft?", "Left."), ("context\n\nright?", "Right.")]


def test_trees_without_children_or_without_parents_are_walked(tmp_path: Path) -> None:
    parents, children = forked(), forked()
    for entry in parents["mapping"].values():
        entry["children"] = []
    links = {"root": ["sys"], "sys": ["q1"], "q1": ["a1", "a2"], "a1": ["q2", "q2b"], "a2": ["again"],
             "again": ["leaf2"], "q2": ["code"], "code": ["out"], "out": ["a3"], "q2b": ["a3b"]}  # fmt: skip
    for key, entry in children["mapping"].items():
        entry["parent"], entry["children"] = None, links.get(key, [])
    whole = by_anchor(export(tmp_path, forked()))
    assert by_anchor(export(tmp_path, parents)) == whole
    assert by_anchor(export(tmp_path, children)) == whole


def test_circles_and_missing_parents_lose_nothing(tmp_path: Path) -> None:
    tree = conversation(
        node("q", "gone", "user", "orphan"), node("a", "q", "assistant", "Kept."),
        node("x", "y", "user", "circle"), node("y", "x", "assistant", "Round."),
        node("z", "z", "user", "self"),
    )  # fmt: skip
    assert texts(export(tmp_path, tree)) == [("orphan", "Kept."), ("circle", "Round."), ("self", "")]


def test_a_long_chain_is_walked_without_recursion(tmp_path: Path) -> None:
    said = (node(str(n), str(n - 1), "user" if n % 2 else "assistant", f"word {n}") for n in range(1, 3001))
    assert len(texts(export(tmp_path, conversation(node("0", None), *said)))) == 1500


def test_hidden_and_context_messages_are_no_prompts(tmp_path: Path) -> None:
    context = {"content_type": "user_editable_context", "user_profile": "x", "user_instructions": "be brief"}
    tree = conversation(
        node("c", None, "user", context),
        node("h", "c", "user", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        node("q", "h", "user", "seen"),
    )
    result = export(tmp_path, tree)
    assert prompts(result) == ["seen"]
    assert [row.reason for row in result.ledger] == ["meta", "injected", ""]


def test_parts_that_are_no_text_are_counted_and_thoughts_kept_apart(tmp_path: Path) -> None:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x", "width": 1}
    many = {"content_type": "multimodal_text", "parts": [picture, "what is this?"]}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "look", "content": "I look."}]}
    tree = conversation(
        node("q", None, "user", many),
        node("t", "q", "assistant", thoughts),
        node("a", "t", "assistant", "A cat."),
        node("i", "a", "user", {"content_type": "multimodal_text", "parts": [picture]}),
    )
    result = export(tmp_path, tree)
    assert texts(result) == [("what is this?", "A cat.")]
    assert result.exchanges[0].thinking == "I look."
    assert [(row.state, row.reason) for row in result.ledger] == [("part_of", ""), ("skipped", "empty")]


def test_places_say_session_title_time_and_model(tmp_path: Path) -> None:
    def at(o: Occurrence) -> tuple[str, str, int | None, bool]:
        return o.session_id, o.title, o.started_at, o.tz_assumed

    result = export(tmp_path, forked(), conversation(node("q", None, "user", "hi")))
    assert {at(o) for o in result.occurrences} == {
        ("c-1", "The cache", 1772359200_500000, False),
        (f"{SOURCE}#1", "The cache", 1772359200_500000, False),
    }
    assert {o.model for o in result.occurrences if o.anchor == "q2"} == {"gpt-test"}


def test_conversations_that_number_their_messages_alike_stay_apart(tmp_path: Path) -> None:
    one = conversation(node("m1", None, "user", "first"), conversation_id="a")
    two = conversation(node("m1", None, "user", "second"), conversation_id="b")
    assert prompts(export(tmp_path, one, two)) == ["first", "second"]
    repeated = export(tmp_path, one, one)
    assert prompts(repeated) == ["first"]
    assert [row.state for row in repeated.ledger] == ["part_of", "duplicate"]


def test_odd_fields_lose_only_themselves(tmp_path: Path) -> None:
    tree = conversation(
        node("q", None, "user", "why?"), node("a", "q", "assistant", "Because."), {"id": "n", "message": 3}
    )
    tree["mapping"]["q"]["children"] = {"not": "a list"}
    tree["mapping"]["a"]["message"]["author"] = "assistant"
    tree["title"] = 7
    assert texts(export(tmp_path, tree, "no conversation", {"mapping": []}, None)) == [("why?", "")]


def test_a_cut_export_keeps_its_whole_conversations(tmp_path: Path) -> None:
    data = json.dumps([forked(), forked() | {"conversation_id": "c-2"}]).encode()[:-40]
    result = read(tmp_path, data, source=SOURCE)
    assert len(result.occurrences) == 5
    assert result.ledger[-1].state == "pending"


# Claude.ai


def claude(**changes: Any) -> dict[str, Any]:
    chat = copy.deepcopy(CLAUDE_AI[0])
    chat["chat_messages"][0] |= changes
    return chat


def test_claude_places_say_session_anchor_title_and_time(tmp_path: Path) -> None:
    result = export(tmp_path, *CLAUDE_AI)
    assert [(o.session_id, o.anchor, o.title, o.started_at) for o in result.occurrences] == [
        ("conv-1", "m1", "Lock files", 1772359200 * 10**6),
        ("conv-1", "m3", "Lock files", None),
    ]
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [("repl", "mark-call", "mark-result")]


def test_an_attachment_alone_is_the_prompt_and_a_picture_alone_waits_for_an_answer(tmp_path: Path) -> None:
    pasted = claude(text="", content=[], attachments=[{"file_name": "", "extracted_content": "a pasted page"}])
    assert prompts(export(tmp_path, pasted))[0] == "a pasted page"
    pictured = claude(text="", content=[], attachments=[])
    assert texts(export(tmp_path, pictured))[0] == ("", "It is stale, mark-said.")


def test_text_counts_where_content_is_missing_or_lacks_it(tmp_path: Path) -> None:
    plain = claude(content=None)
    del plain["chat_messages"][1]["content"]
    assert texts(export(tmp_path, plain))[0] == (
        "read this mark-typed\n\n[lock.txt]\nmark-attached",
        "It is stale, mark-said.",
    )


def test_an_exporter_that_writes_role_and_content_is_read(tmp_path: Path) -> None:
    chat = {"uuid": "c", "chat_messages": [
        {"role": "user", "content": "which risks?"}, {"role": "assistant", "content": "Drift."},
        {"role": "user", "content": "more?"},
    ]}  # fmt: skip
    result = export(tmp_path, chat)
    assert texts(result) == [("which risks?", "Drift."), ("more?", "")]
    assert [o.anchor for o in result.occurrences] == ["1", "3"]


def test_claude_branches_follow_parent_links(tmp_path: Path) -> None:
    def said(key: str, parent: str, sender: str, text: str) -> dict[str, str]:
        return {"uuid": key, "parent_message_uuid": parent, "sender": sender, "text": text}

    root = "00000000-0000-4000-8000-000000000000"
    chat = {"uuid": "c", "chat_messages": [
        said("q", root, "human", "go"), said("a", "q", "assistant", "Left."), said("b", "q", "assistant", "Right."),
        said("t", "b", "human", "thanks"),
    ]}  # fmt: skip
    result = export(tmp_path, chat)
    assert {k: v[:2] for k, v in by_anchor(result).items()} == {
        "q": ("go", "Left."), "b": ("go", "Right."), "t": ("thanks", "")}  # fmt: skip
    assert by_anchor(result)["t"][2] == content(result, "b")


# ShareGPT


def chat(*said: tuple[str, str], key: str = "s") -> dict[str, Any]:
    return {"id": key, "conversations": [{"from": sender, "value": text} for sender, text in said]}


def test_sharegpt_calls_meet_their_results_by_order(tmp_path: Path) -> None:
    result = export(tmp_path, chat(
        ("human", "both?"),
        ("function_call", '{"name": "a", "arguments": {"command": "x"}}'), ("function_call", "free text"),
        ("observation", "one"), ("tool", "two"), ("observation", "three"), ("gpt", "Yes."),
    ))  # fmt: skip
    assert [(t.name, t.input, t.head) for t in result.exchanges[0].tools] == [
        ("a", "x", "one"), ("", "free text", "two"), ("", "", "three")]  # fmt: skip
    assert [o.anchor for o in result.occurrences] == ["1"]


def test_sharegpt_conversations_of_one_id_are_two_sessions(tmp_path: Path) -> None:
    result = export(tmp_path, chat(("human", "a")), chat(("human", "b")), {"conversations": []}, chat(key=""))
    assert [o.session_id for o in result.occurrences] == ["s", f"{SOURCE}#1"]


def test_sharegpt_odd_messages_are_skipped_with_a_reason(tmp_path: Path) -> None:
    odd = {"id": "o", "conversations": [{"from": "human", "value": None}, 3, {"from": "x", "value": "y"}, {}]}
    result = export(tmp_path, odd)
    assert texts(result) == []
    assert [row.reason for row in result.ledger] == ["empty", "meta", "empty"]


# Detection


def test_exports_are_claimed_by_content() -> None:
    assert [r and r.name for r in (
        detect(json.dumps([forked()], indent=2).encode(), "x"),
        detect(json.dumps(CLAUDE_AI, indent=2).encode(), "x"),
        detect(b'[{"mapping": {"a": {"b": 1}}}]', "conversations.json"),
        detect(b'{"text": "\\"chat_messages\\": ["}', "conversations.json"),
    )] == ["chatgpt", "claude_ai", None, None]  # fmt: skip
