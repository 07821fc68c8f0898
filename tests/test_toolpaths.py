"""Files of tool calls: exact values over the agents' tools, and the files an exchange touched."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.toolpaths import files_touched, tool_paths
from backfill.types import Exchange, FileTouched, ToolCall

CWD = "/proj"
PATCH = """*** Begin Patch
*** Add File: src/new.py
+print("hi")
*** Update File: src/old.py
@@
-a
+b
*** Update File: src/from.py
*** Move to: src/to.py
@@
*** Delete File: docs/my notes.md
*** End Patch
"""
PATCHED = [
    ("src/new.py", "created"),
    ("src/old.py", "edited"),
    ("src/from.py", "deleted"),
    ("src/to.py", "created"),
    ("docs/my notes.md", "deleted"),
]


@pytest.mark.parametrize(
    ("name", "arguments", "result", "expected"),
    [
        ("Read", {"file_path": "/proj/a.py"}, None, [("a.py", "read")]),
        ("Write", {"file_path": "/proj/a.py"}, None, [("a.py", "created")]),
        ("Write", {"file_path": "/proj/a.py"}, "File created successfully at: /proj/a.py", [("a.py", "created")]),
        ("Write", {"file_path": "/proj/a.py"}, "The file /proj/a.py has been updated.", [("a.py", "edited")]),
        ("Write", {"file_path": "/proj/updated.md"}, "File created successfully at: u", [("updated.md", "created")]),
        ("write_file", {"file_path": "a.py"}, "Successfully overwrote file: /proj/a.py", [("a.py", "edited")]),
        ("Edit", {"file_path": "/proj/src/a.py", "old_string": "a"}, "has been updated", [("src/a.py", "edited")]),
        ("Edit", {"file_path": "/proj/a.py"}, "<tool_use_error>File has not been read", [("a.py", "referenced")]),
        ("MultiEdit", {"file_path": "/proj/a.py", "edits": []}, None, [("a.py", "edited")]),
        ("NotebookEdit", {"notebook_path": "/proj/n.ipynb"}, None, [("n.ipynb", "edited")]),
        ("Grep", {"pattern": "x.py", "path": "src"}, None, []),
        ("Grep", {"pattern": "x", "path": "/proj/src/a.py"}, None, [("src/a.py", "read")]),
        ("Glob", {"pattern": "**/*.ts"}, "a.ts", []),
        ("LS", {"path": "/proj/src"}, None, []),
        ("WebFetch", {"url": "https://a.example/x.html"}, None, []),
        ("TodoWrite", {"todos": [{"content": "fix a.py"}]}, None, []),
        ("read_file", '{"path": "src/a.py"}', None, [("src/a.py", "read")]),
        (
            "read_file",
            {"args": {"file": [{"path": "a.py"}, {"path": "b.py"}]}},
            None,
            [("a.py", "read"), ("b.py", "read")],
        ),
        ("read_many_files", {"paths": ["a.py", "src/**/*.ts"]}, None, [("a.py", "read")]),
        ("write_to_file", {"path": "a.py", "content": "x"}, None, [("a.py", "created")]),
        ("replace_in_file", {"path": "a.py", "diff": "x"}, None, [("a.py", "edited")]),
        ("replace", {"file_path": "/proj/a.py"}, None, [("a.py", "edited")]),
        ("edit", {"filePath": "/other/a.py"}, None, [("/other/a.py", "edited")]),
        ("create_file", {"filePath": "/proj/a.py"}, None, [("a.py", "created")]),
        ("delete_file", {"target_file": "a.py"}, None, [("a.py", "deleted")]),
        ("rename_file", {"old_path": "a.ts", "new_path": "b.ts"}, None, [("a.ts", "deleted"), ("b.ts", "created")]),
        ("str_replace_editor", {"command": "view", "path": "/proj/a"}, None, [("a", "read")]),
        ("str_replace_editor", {"command": "create", "path": "/proj/a.py"}, None, [("a.py", "created")]),
        ("str_replace_based_edit_tool", {"command": "str_replace", "path": "/proj/a.py"}, None, [("a.py", "edited")]),
        ("mcp__fs__read_text_file", {"path": "/proj/q.txt"}, None, [("q.txt", "read")]),
        ("mcp__ide__getDiagnostics", {"uri": "file:///proj/q.go"}, None, [("q.go", "referenced")]),
        ("create", {"filename": "reproduce.py"}, None, [("reproduce.py", "created")]),
        ("Edit", {"file_path": "C:\\proj\\src\\a.ts"}, None, [("C:/proj/src/a.ts", "edited")]),
        ("apply_patch", {"input": PATCH}, None, PATCHED),
        ("apply_patch", PATCH, None, PATCHED),
        ("shell", {"command": ["apply_patch", PATCH]}, None, PATCHED),
        ("shell", {"command": ["bash", "-lc", f"cd /proj && apply_patch <<'EOF'\n{PATCH}EOF\n"]}, None, PATCHED),
        ("shell", '{"command": ["bash", "-lc", "cat a.py"]}', None, [("a.py", "read")]),
    ],
)
def test_tool_call(name: str, arguments: Any, result: str | None, expected: list[tuple[str, str]]) -> None:
    assert tool_paths(name, arguments, result, CWD) == expected


def test_windows_folder() -> None:
    assert tool_paths("Edit", {"file_path": "C:\\proj\\src\\a.ts"}, None, "c:\\Proj") == [("src/a.ts", "edited")]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm -f old.py", [("old.py", "deleted")]),
        ("git rm old.py", [("old.py", "deleted")]),
        ("rm -rf build node_modules", []),
        ("rm *.o $TMP/x.txt", []),
        ("mv a.txt b.txt", [("a.txt", "deleted"), ("b.txt", "created")]),
        ("mv a.py lib", [("a.py", "deleted"), ("lib/a.py", "created")]),
        ("cp x.py dir/", [("x.py", "read"), ("dir/x.py", "created")]),
        ("touch 'my notes.md'", [("my notes.md", "created")]),
        ("cat src/a.py | head -20 > out.log 2>&1", [("src/a.py", "read"), ("out.log", "created")]),
        ("make 2>/dev/null", []),
        ("echo hi >> notes.md", [("notes.md", "edited")]),
        ("echo 'see main.py'", []),
        ("git commit -m 'fix main.py'", []),
        ("sed -i 's/a/b/' x.ts", [("x.ts", "edited")]),
        ("sed -i '' 's/a/b/' x.ts", [("x.ts", "edited")]),
        ("sed -i -e 's/a/b/' x.ts y.ts", [("x.ts", "edited"), ("y.ts", "edited")]),
        ("sed -n '1,20p' src/q.go", [("src/q.go", "read")]),
        ("head -n 20 README.md", [("README.md", "read")]),
        ('grep -rn "foo.py" src/app.ts', [("src/app.ts", "read")]),
        ("awk '{print $1}' data.csv", [("data.csv", "read")]),
        (
            "cd sub && python main.py --config=conf/x.yml",
            [("sub/main.py", "referenced"), ("sub/conf/x.yml", "referenced")],
        ),
        ("cd /proj/web && cat package.json", [("web/package.json", "read")]),
        ("cd /other; cat a.py", [("/other/a.py", "read")]),
        ("cat > src/new.py <<'EOF'\nimport os.path\nrm x.py\nEOF\nls", [("src/new.py", "created")]),
        ("bash -c 'rm tmp.txt'", [("tmp.txt", "deleted")]),
        ("pytest tests/test_a.py::test_b -q", [("tests/test_a.py", "referenced")]),
        ("go test ./... 2>&1 | tail -30", []),
        ("curl -o data.json https://x.example/z.json", [("data.json", "created")]),
        ("tee -a app.log", [("app.log", "edited")]),
        ("find . -name '*.py' -exec rm {} \\;", []),
        ("type C:\\x\\b.txt", [("C:/x/b.txt", "read")]),
        ("sudo FOO=1 cat /etc/hosts", [("/etc/hosts", "read")]),
        ("git apply <<'EOF'\n--- a/x.py\n+++ b/x.py\n@@\nEOF\n", [("x.py", "edited")]),
        ("cat 'unterminated.py", [("unterminated.py", "read")]),
    ],
)
def test_shell_command(command: str, expected: list[tuple[str, str]]) -> None:
    assert tool_paths("Bash", {"command": command}, None, CWD) == expected


def _exchange(tools: list[ToolCall], text_paths: tuple[str, ...] = ()) -> Exchange:
    return Exchange(b"e" * 16, b"c" * 16, None, "u", "a", 0, 2, 1, "", tuple(tools), text_paths)


def test_files_touched_takes_the_strongest_action_and_tools_before_text() -> None:
    exchange = _exchange(
        [
            ToolCall("Read", b"", ("b.py", "a.py"), ("read", "read")),
            ToolCall("Edit", b"", ("a.py",), ("edited",)),
            ToolCall("Bash", b"", ("z.py", "n.py"), ("deleted", "created")),
        ],
        ("b.py", "doc.md"),
    )
    assert files_touched(exchange) == (
        FileTouched("z.py", "deleted", "tool"),
        FileTouched("n.py", "created", "tool"),
        FileTouched("a.py", "edited", "tool"),
        FileTouched("b.py", "read", "tool"),
        FileTouched("doc.md", "referenced", "text"),
    )


def test_no_files() -> None:
    assert files_touched(_exchange([])) == ()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_NAMES = st.sampled_from(["Bash", "Write", "apply_patch", "rename_file", "str_replace_editor", "x", "", "mcp__a__b"])
_KEYS = st.sampled_from(["command", "path", "file_path", "files", "edits", "input", "paths", "new_path", "old_path"])


@settings(deadline=None)
@given(_NAMES, st.text(max_size=80) | st.dictionaries(_KEYS, _JSON, max_size=4), st.none() | st.text(max_size=20))
def test_odd_arguments_never_fail(name: str, arguments: Any, result: str | None) -> None:
    for path, action in tool_paths(name, arguments, result, CWD):
        assert path
        assert action in ("deleted", "created", "edited", "read", "referenced")


@settings(deadline=None)
@given(st.text(alphabet="ab.py/ '\"\\|;&<>()$`\n-{}*=~", max_size=80))
def test_any_shell_text_is_read(command: str) -> None:
    assert isinstance(tool_paths("Bash", {"command": command}, None, CWD), list)
