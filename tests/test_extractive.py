"""The extractive distiller on hand-written exchanges, and its laws on any text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.extractive import (
    MAX_CONTEXT_BYTES,
    MAX_CORE_BYTES,
    candidates,
    extract,
    extractive_fingerprint,
    field_text,
    raw_object,
)
from backfill.fidelity.checks import check_object
from backfill.ids import row_hash
from backfill.text import sentence_spans, tokens_est
from backfill.types import Exchange, FileTouched, PalaceObject, ToolCall


def make(user: str, agent: str, tools: tuple[ToolCall, ...] = (), paths: tuple[str, ...] = ()) -> Exchange:
    return Exchange(b"e" * 16, b"c" * 16, None, user, agent, 0, 2, tokens_est(user, agent), "", tools, paths)


def distill(exchange: Exchange) -> PalaceObject:
    obj = extract(exchange, generation=3, fingerprint="f")
    assert field_text(exchange, obj.context_field)[obj.context_start : obj.context_end] == obj.specific_context
    return obj


def test_core_is_topic_and_outcome_and_context_the_sharpest_span() -> None:
    exchange = make(
        "Hi! Uploads keep failing behind the proxy.",
        "Let me look at the client.\n\nFixed the upload retries: `retry_timeout=45` now outlasts the proxy.\n\nThanks!",
        (ToolCall("Edit", b"", ("src/upload.py",), ("edited",)),),
    )
    obj = distill(exchange)
    assert obj.exchange_core == (
        "Uploads keep failing behind the proxy. Fixed the upload retries: `retry_timeout=45` now outlasts the proxy."
    )
    assert obj.files_touched == (FileTouched("src/upload.py", "edited", "tool"),)
    assert (obj.room_assignments[0].room_type, obj.room_assignments[0].room_key) == ("file", "upload")
    assert (obj.tier, obj.generation, obj.fingerprint, obj.source_row) == ("extractive", 3, "f", row_hash(exchange))
    assert obj.tokens == tokens_est(obj.exchange_core + "\n" + obj.specific_context)


def test_context_comes_from_outside_the_core_where_it_can() -> None:
    exchange = make(
        "Why does the nightly import of the product catalogue stop halfway?",
        "The import stops because one supplier row has a bad price.\n\n"
        "It raises `ValueError` at row 1,240 of the file.",
    )
    obj = distill(exchange)
    assert obj.exchange_core == "Why does the nightly import of the product catalogue stop halfway?"
    assert obj.specific_context == "It raises `ValueError` at row 1,240 of the file."
    assert obj.context_field == "agent_text"


def test_a_name_in_the_context_keeps_the_words_around_it() -> None:
    exchange = make(
        "Make the search page load faster for large catalogues, please.",
        "The search page now loads in one query because results are cached.\n\n"
        "Old entries leave it after the `cache_ttl` has run out, and never before.",
    )
    assert distill(exchange).specific_context == "Old entries leave it after the `cache_ttl` has run out"


def test_an_error_of_a_tool_result_can_be_the_context() -> None:
    tool = ToolCall("Bash", b"", (), (), "make", "compiling\n  TypeError: price must be a number\nmake: stopped")
    exchange = make("Please build the shop once more for me now.", "The build of the shop stopped again.", (tool,))
    obj = distill(exchange)
    assert obj.specific_context == "TypeError: price must be a number"
    assert obj.context_field == "tools.0.head"


def test_the_context_is_the_sentence_with_most_words_that_the_core_lacks() -> None:
    exchange = make(
        "Why does the nightly import of the product catalogue stop halfway?",
        "Fixed the nightly import of the product catalogue, which stopped at a broken price.\n\n"
        "The product catalogue import is nightly.\n\n"
        "Supplier rows without currency now land in quarantine.\n\n"
        "If you need further assistance with anything else whatsoever, feel free to ask!",
    )
    obj = distill(exchange)
    assert obj.specific_context == "Supplier rows without currency now land in quarantine."
    assert obj.context_field == "agent_text"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("2 errors shown\n  TypeError: price must be a number\nmake: stopped", "TypeError: price must be a number"),
        ("error log follows\nFAIL tests/price", "error log follows"),
        ("onError(callback)\nterrors of the deep\n", ""),
        ("all fine", ""),
        ("panic: index out of range\r\nrest", "panic: index out of range"),
    ],
)
def test_an_error_line_names_an_error_as_a_word(output: str, line: str) -> None:
    exchange = make("Please build the shop.", "Built it.", (ToolCall("Bash", b"", (), (), "make", output),))
    found = [candidate.text for candidate in candidates(exchange) if candidate.kind == "error"]
    assert found == ([line] if line else [])


def test_a_long_link_is_cut_where_its_parts_end() -> None:
    link = "https://tracker.example/board/issue/CACHE-217/" + "checkpoint-" * 12
    exchange = make(f"[CACHE-217]({link})", "")
    obj = distill(exchange)
    assert obj.exchange_core.startswith(
        "[CACHE-217](https://tracker.example/board/issue/CACHE-217/checkpoint-checkpoint"
    )
    assert obj.exchange_core.endswith("checkpoint")
    assert check_object(obj, exchange) == ()


def test_courtesy_is_no_topic() -> None:
    obj = distill(
        make(
            "Thanks for all of your kind assistance with this today. Rename the invoices table before the release on"
            " Friday, so that nothing breaks at the customer.",
            "",
        )
    )
    assert obj.exchange_core == (
        "Rename the invoices table before the release on Friday, so that nothing breaks at the customer."
    )


def test_short_sentences_bring_their_neighbours() -> None:
    obj = distill(make("Uploads fail. Only behind the proxy.", "Fixed it. The proxy closed idle sockets."))
    assert obj.exchange_core == "Uploads fail; Only behind the proxy. Fixed it; The proxy closed idle sockets."


def test_what_named_people_say_keeps_their_names() -> None:
    obj = distill(
        make(
            "Priya: Morning! The nightly catalogue import stopped halfway once more, at the row without a price.",
            "Tomas: Hm. Rows without a price now go to quarantine instead of stopping everything.",
        )
    )
    assert obj.exchange_core == (
        "Priya: The nightly catalogue import stopped halfway once more, at the row without a price."
    )


def test_markup_code_and_tables_stay_out_of_the_core() -> None:
    exchange = make(
        "## Add a price filter to the search page",
        "```python\nfixed = added = removed = 1\n```\n| fixed | added |\n|---|---|\n"
        "- **Added the price filter to the search page.**",
    )
    assert distill(exchange).exchange_core == (
        "Add a price filter to the search page. Added the price filter to the search page."
    )


def test_trivial_prompts_leave_the_core_to_the_answer() -> None:
    obj = distill(make("yes", "Moved the session table to its own database file so that writes stop blocking reads."))
    assert obj.exchange_core == "Moved the session table to its own database file so that writes stop blocking reads."


def test_a_core_has_two_sentences_at_most() -> None:
    row = make("The build fails. It says E1. Why? Look at it.", "Fixed in make.py. The flag was wrong. Run it.")
    core = distill(row).exchange_core
    assert core == "The build fails. Fixed in make.py; The flag was wrong; Run it."
    alone = distill(make("The build of the web page fails. It says E1. Does it pass elsewhere? Look at it.", ""))
    assert alone.exchange_core == "The build of the web page fails. It says E1; Does it pass elsewhere?"


def test_without_an_answer_the_prompt_is_the_core() -> None:
    obj = distill(make("Please rename the invoices table to bills before the release on Friday.", ""))
    assert obj.exchange_core == "Please rename the invoices table to bills before the release on Friday."


def test_without_a_prompt_the_answer_is_the_core() -> None:
    obj = distill(make("", "Renamed the invoices table to bills before the release on Friday."))
    assert obj.exchange_core == "Renamed the invoices table to bills before the release on Friday."


def test_chinese_sentences() -> None:
    obj = distill(
        make("上传总是失败，请检查代理设置。谢谢！", "我来看看。已修复上传重试：超时时间从三十秒改为四十五秒。完成。")
    )
    assert obj.exchange_core == "上传总是失败，请检查代理设置。 已修复上传重试：超时时间从三十秒改为四十五秒。"


def test_below_min_tokens_the_object_is_raw_and_whole() -> None:
    obj = distill(make("go on\nplease", "ok"))
    assert (obj.tier, obj.exchange_core, obj.specific_context) == ("raw", "go on please\nok", "")
    assert (obj.context_field, obj.context_start, obj.context_end) == ("user_text", 0, 0)


def test_raw_object_holds_both_texts_whole() -> None:
    exchange = make("a  b\n" * 500, "c\n" * 500)
    obj = raw_object(exchange, generation=0, fingerprint="f")
    assert obj.exchange_core == " ".join(["a b"] * 500) + "\n" + " ".join(["c"] * 500)


def test_long_sentences_are_cut_at_a_clause() -> None:
    clause = "the importer now skips rows without a price"
    obj = distill(make("", f"{clause}, " * 6))
    assert obj.exchange_core == f"{clause}, {clause}"


@pytest.mark.parametrize(
    "text",
    ["x" * 2_000_000, "word " * 400_000, "a.b/c_d=1 " * 200_000, "`" * 500_000, "```\n" * 300_000, "。" * 300_000],
)
def test_huge_texts_are_bounded(text: str) -> None:
    exchange = make(text, text)
    obj = distill(exchange)
    assert obj.tier == "raw" or obj.tokens <= 60
    assert len(candidates(exchange)) <= 16


def test_candidates_are_ranked_literal_and_distinct() -> None:
    exchange = make(
        "Uploads to api.internal:8080 fail.",
        "Raised `retry_timeout` to 45 s in src/upload.py, see https://a.example/x.",
        (ToolCall("Bash", b"", (), (), "", "", "fatal: upstream closed the connection"),),
    )
    found = candidates(exchange, limit=5)
    assert len(found) == 5
    assert found == sorted(found, key=lambda c: -c.score)
    assert len({candidate.text for candidate in found}) == 5
    for candidate in candidates(exchange):
        assert field_text(exchange, candidate.field)[candidate.start : candidate.end] == candidate.text


def test_unknown_fields_are_refused() -> None:
    for field in ("thinking", "tools.0.head", "tools.x.tail", ""):
        with pytest.raises(KeyError):
            field_text(make("u", "a"), field)


def test_fingerprint_depends_on_the_setting() -> None:
    assert extractive_fingerprint(12) == extractive_fingerprint(12) != extractive_fingerprint(13)


TEXT = st.text(max_size=400) | st.text(alphabet="aB1. ,:`*#\"'\n\t|-_/=()。，é中\x00\x1b", max_size=300)
TOOLS = st.lists(st.builds(ToolCall, st.just("t"), st.just(b""), head=TEXT, tail=TEXT), max_size=2).map(tuple)


@settings(max_examples=200, deadline=None)
@given(TEXT, TEXT, TOOLS)
def test_slices_hold_budgets_hold_and_the_same_row_gives_the_same_object(
    user: str, agent: str, tools: tuple[ToolCall, ...]
) -> None:
    exchange = make(user, agent, tools)
    obj = distill(exchange)
    assert obj == extract(exchange, generation=3, fingerprint="f")
    assert 1 <= len(obj.room_assignments) <= 3
    if obj.tier == "extractive":
        assert obj.exchange_core
        assert "\n" not in obj.exchange_core
        assert len(sentence_spans(obj.exchange_core)) <= 2
        assert tokens_est(obj.exchange_core) * 4 <= MAX_CORE_BYTES + 8
        assert tokens_est(obj.specific_context) * 4 <= MAX_CONTEXT_BYTES + 8
    for candidate in candidates(exchange):
        assert field_text(exchange, candidate.field)[candidate.start : candidate.end] == candidate.text
        assert candidate.text
