"""Documents: which files are read, cut at headings, Markdown's traps, HTML."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill.config import ScanConfig, bind
from backfill.errors import ConfigError
from backfill.ledger import check
from backfill.sources import UnitResult, detect, read_unit
from backfill.sources.documents import MAX_HTML_BYTES, is_named
from tests.claude_lines import ClaudeFile, texts
from tests.sources.markdown_files import SPECSTORY

NOTE = """---
title: "Storage design"
owner: ana
---
# Storage

Two tiers, mark-tiers.

## Layout

### Segments ###

One file each.

```sh
# not a heading
```

Second paragraph.

## Open

Dates
-----

Until May.

# Done
"""
PAGE = """<!DOCTYPE html>
<html><head><title>Minutes &amp; notes</title><style>.mark-style { }</style></head>
<body><script>var h = "<h1>mark-script</h1>";</script>
<p>Before mark-before.</p>
<h1>Minutes</h1><p>Present: <b>Ana</b>,
  Bo.</p><h2>Decisions &gt; all</h2><ul><li>keep the <code>lock</code></li><li>drop it</li></ul>
<pre>a = 1
  b = 2</pre></body></html>
"""


def document(tmp_path: Path, text: str | bytes, source: str = "docs/a.md", split_tokens: int = 1500) -> UnitResult:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / "unit").write_bytes(data)
    config = ScanConfig(documents=("docs/**",), privacy="off")
    result = read_unit(tmp_path / "unit", source, len(data), config, split_tokens=split_tokens)
    assert check(result.ledger, {source: len(data)}, {e.exchange_id for e in result.exchanges}) == []
    return result


def test_sections_are_cut_at_headings_with_their_path_for_a_prompt(tmp_path: Path) -> None:
    result = document(tmp_path, NOTE)
    assert texts(result) == [
        ("Storage", "Two tiers, mark-tiers."),
        ("Storage > Layout > Segments", "One file each.\n\n```sh\n# not a heading\n```\n\nSecond paragraph."),
        ("Storage > Open", ""),
        ("Storage > Dates", "Until May."),
        ("Done", ""),
    ]
    assert {(o.agent, o.session_id, o.title, o.project, o.started_at) for o in result.occurrences} == {
        ("document", "docs/a.md", "Storage design", "docs", None)
    }
    assert [o.anchor for o in sorted(result.occurrences, key=lambda o: o.byte_start)] == ["2", "5", "7", "8", "10"]
    assert [row.reason for row in result.ledger if row.reason] == ["meta", "heading"]


def test_text_before_the_first_heading_has_no_prompt(tmp_path: Path) -> None:
    assert texts(document(tmp_path, "Just a note.\n\nTwo.\n")) == [("", "Just a note.\n\nTwo.")]
    assert texts(document(tmp_path, "Intro.\n\n# A\n\nText.\n")) == [("", "Intro."), ("A", "Text.")]


def test_the_title_is_the_first_heading_where_no_front_matter_names_one(tmp_path: Path) -> None:
    assert {o.title for o in document(tmp_path, "# Plan\n\nx\n\n# Later\n\ny\n").occurrences} == {"Plan"}


def test_underlined_headings_and_rules_are_told_apart(tmp_path: Path) -> None:
    text = "Plan\n====\n\nfirst\n\n---\n\nsecond\nline\n---\n\nNext\n---\nthird\n"
    assert texts(document(tmp_path, text)) == [
        ("Plan", "first\n\n---\n\nsecond\nline\n---"),
        ("Plan > Next", "third"),
    ]


def test_hashes_that_are_no_headings_stay_text(tmp_path: Path) -> None:
    text = "# A\n\n#hashtag\n\n    # code\n\n~~~\n# x\n```\n# y\n~~~\n####### seven\n"
    assert texts(document(tmp_path, text)) == [("A", text[5:].rstrip())]


def test_a_long_section_is_cut_between_its_paragraphs(tmp_path: Path) -> None:
    paragraphs = [f"Paragraph {n}. {'word ' * 200}end." for n in range(12)]
    result = document(tmp_path, "# Long\n\n" + "\n\n".join(paragraphs) + "\n", split_tokens=500)
    pairs = ["\n\n".join(paragraphs[n : n + 2]) for n in range(0, 12, 2)]  # the second one passes 2,000 bytes
    assert texts(result) == [("Long", pair) for pair in pairs]


def test_front_matter_that_never_ends_is_text(tmp_path: Path) -> None:
    text = "---\n" + "line\n" * 80 + "\n# A\n\nText.\n"
    assert texts(document(tmp_path, text))[-1] == ("A", "Text.")


def test_html_is_read_without_scripts_and_styles(tmp_path: Path) -> None:
    result = document(tmp_path, PAGE, "docs/m.html")
    assert texts(result) == [
        ("", "Before mark-before."),
        ("Minutes", "Present: Ana, Bo."),
        ("Minutes > Decisions > all", "- keep the lock\n- drop it\n\na = 1\n  b = 2"),
    ]
    assert {o.title for o in result.occurrences} == {"Minutes & notes"}
    rows = {e.exchange_id: e for e in result.exchanges}
    for mark, user in (("Present", "Minutes"), ("drop it", "Minutes > Decisions > all")):
        at = PAGE.encode().index(mark.encode())
        row = next(r for r in result.ledger if r.byte_start <= at < r.byte_end)
        assert row.ref is not None
        assert rows[row.ref].user_text == user


def test_a_long_html_section_is_cut_between_its_paragraphs(tmp_path: Path) -> None:
    body = "".join(f"<p>Paragraph {n}. {'word ' * 200}</p>\n" for n in range(12))
    result = document(tmp_path, f"<html><body><h1>Long</h1>{body}</body></html>", split_tokens=500)
    assert len(result.occurrences) == 6
    assert all(row.byte_end > row.byte_start for row in result.ledger)


def test_broken_html_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = "<html><h1>Open <b>heading<p>text</h2> &bogus; <!-- never closed\n<h3>hidden"
    assert check(document(tmp_path, text).ledger, {"docs/a.md": len(text)}) == []


def test_html_that_is_too_large_is_quarantined(tmp_path: Path) -> None:
    result = document(tmp_path, b"<!doctype html>" + b" " * MAX_HTML_BYTES)
    assert [(row.state, row.reason) for row in result.ledger] == [("quarantined", "too_large")]


@given(text=st.text(alphabet="#=-`~ \n<>abc/h1&;!\r\t", max_size=120), html=st.booleans())
def test_any_text_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, text: str, html: bool) -> None:
    document(tmp_path_factory.mktemp("d"), ("<html>" if html else "") + text)


def test_only_named_files_are_documents() -> None:
    globs = ("docs/**/*.md", "notes/*.txt")
    assert [is_named(path, globs) for path in ("docs/a.md", "docs/x/y/b.md", "notes/a.txt")] == [True] * 3
    assert [is_named(path, globs) for path in ("a.md", "docs/a.txt", "notes/x/a.txt", "xdocs/a.md")] == [False] * 4
    head = NOTE.encode()
    assert detect(head, "docs/a.md") is None
    assert detect(head, "src/a.md", globs) is None
    assert getattr(detect(head, "docs/a.md", globs), "name", "") == "document"


def test_a_transcript_is_no_document_and_a_quoted_one_makes_no_transcript() -> None:
    globs = ("**/*",)
    session = ClaudeFile()
    session.user("hi")
    found = (session.data(), SPECSTORY.encode(), b"# Log\n\n" + session.data(), b"PK\0\3 binary", b"[ ] a list\n")
    assert [getattr(detect(head, "a/b.md", globs), "name", None) for head in found] == [
        "claude_code", "specstory", "document", None, "document",
    ]  # fmt: skip


def test_globs_are_a_list_of_texts() -> None:
    assert bind(ScanConfig, {"documents": ["docs/*.md"]}, "x").documents == ("docs/*.md",)
    with pytest.raises(ConfigError, match="documents"):
        bind(ScanConfig, {"documents": {"a": 1}}, "x")
