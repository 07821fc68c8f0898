"""Paths in prose and their spelling: exact values."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.paths import MAX_PATH_CHARS, is_file_like, relative_path, text_paths

CWD = "/home/ana/shop"

NAMED = {
    "src/app.ts": "src/app.ts",
    "src/app.ts:42": "src/app.ts",
    "src/app.ts:42:7": "src/app.ts",
    "src/app.ts#L10": "src/app.ts",
    "app.py(12)": "app.py",
    "main.py": "main.py",
    "package.json": "package.json",
    "schema.sql": "schema.sql",
    "go.mod": "go.mod",
    "Cargo.lock": "Cargo.lock",
    "README.md": "README.md",
    "archive-1.2.3.tar.gz": "archive-1.2.3.tar.gz",
    "button.test.tsx": "button.test.tsx",
    "Dockerfile": "Dockerfile",
    "Dockerfile.dev": "Dockerfile.dev",
    "Makefile": "Makefile",
    "docker/Dockerfile": "docker/Dockerfile",
    ".github/workflows/ci.yml": ".github/workflows/ci.yml",
    ".husky/pre-commit": ".husky/pre-commit",
    ".env": ".env",
    ".env.local": ".env.local",
    ".gitignore": ".gitignore",
    ".eslintrc.json": ".eslintrc.json",
    "docs/résumé.md": "docs/résumé.md",
    "文档/说明.md": "文档/说明.md",
    "请看src/app.ts文件": "src/app.ts",
    "./scripts/run": "scripts/run",
    "./x": "x",
    "../x": "../x",
    "~/x": "~/x",
    "~/.ssh/config": "~/.ssh/config",
    "/etc/hosts": "/etc/hosts",
    "/usr/local/bin/tool": "/usr/local/bin/tool",
    "/home/ana/shop/src/cart.py": "src/cart.py",
    "/home/ana/shopping/cart.py": "/home/ana/shopping/cart.py",
    "app/[id]/page.tsx": "app/[id]/page.tsx",
    "app/(shop)/page.tsx": "app/(shop)/page.tsx",
    "@src/cart.py": "src/cart.py",
    "tests/test_cart.py::test_total": "tests/test_cart.py",
    "`src/cart.py`": "src/cart.py",
    "**src/cart.py**": "src/cart.py",
    "[the cart](docs/cart.md)": "docs/cart.md",
    "(see src/cart.py).": "src/cart.py",
    "`My Docs/a b.txt`": "My Docs/a b.txt",
    '"docs/my file.md"': "docs/my file.md",
    "'My notes.md'": "My notes.md",
    "`cat src/cart.py`": "src/cart.py",
    r"C:\other\a.ts": "C:/other/a.ts",
    '"C:\\My Docs\\a b.txt"': "C:/My Docs/a b.txt",
}

NOT_NAMED = """
Node.js|node.js|Next.js|Vue.js|console.log|process.env|import.meta.env|e.g.|i.e.|and/or|his/her|TCP/IP|client/server|I/O
https://a.example/b/c.html|http://localhost:3000/index.html|ftp://h/x.tar.gz|www.site.org/a.js|@types/node|@babel/core
1.2.3|v2.0|2.0.rc1|3.14|example.com|api.internal:8080|github.com/a/b.go|docs.example.org/guide.html|127.0.0.1/x.html
localhost:3000/index.html|01/02/2026|2026/01/02|1/2|24/7|os.path|np.float32|self.log|mutex.lock|array.map|res.json
response.json()|foo.bar()|json.loads(x)|me@example.com|git@github.com:a/b.git|origin/main|feature/x|origin/release-1.2
*.py|src/**/*.ts|src/|./...|.../deep/file|${HOME}/x.sh|$ROOT/x.sh|<dir>/f.py|.NET|.py|text/html|application/json|done.Then
U.S.|a.m.|Ph.D.|/api/users|/compact|n/a|x.y.z|2.5x|etc.|Mr.|profile|Profile
""".replace("\n", "|").split("|")


@pytest.mark.parametrize(("written", "path"), NAMED.items())
def test_a_path_in_prose_is_found(written: str, path: str) -> None:
    assert text_paths(f"Please look at {written}, then go on.", CWD) == [path]


@pytest.mark.parametrize("word", [word for word in NOT_NAMED if word])
def test_a_word_that_only_looks_like_a_path_is_not(word: str) -> None:
    assert text_paths(f"Please look at {word} again, ({word}) or {word}.", CWD) == []


def test_order_is_of_first_mention_and_each_path_once() -> None:
    text = "In b.py and a.py; then b.py:3 again, 'My Docs/z.txt', and ./b.py."
    assert text_paths(text, "") == ["b.py", "a.py", "My Docs/z.txt"]


def test_windows_paths_are_relative_to_their_folder_without_case() -> None:
    assert text_paths(r"see C:\Proj\src\a.ts and D:\x\b.ts", "c:\\proj") == ["src/a.ts", "D:/x/b.ts"]
    assert text_paths(r"see src\lib\a.ts", "C:\\proj") == ["src/lib/a.ts"]


@pytest.mark.parametrize(
    ("path", "cwd", "expected"),
    [
        ("/p/src/a.py", "/p", "src/a.py"),
        ("/p/src/a.py", "/p/", "src/a.py"),
        ("/p2/a.py", "/p", "/p2/a.py"),
        ("/p/../q/a.py", "/p", "/q/a.py"),
        ("/p", "/p", ""),
        ("./a.py", "/p", "a.py"),
        ("../a.py", "/p", "../a.py"),
        ("~/a.py", "/p", "~/a.py"),
        ("a//b.py", "/p", "a/b.py"),
        ("file:///p/a.py", "/p", "a.py"),
        ("file:///C:/p/a.py", "C:\\p", "a.py"),
        ("C:\\proj\\src\\a.ts", "C:\\proj", "src/a.ts"),
        ("c:/proj/src/a.ts", "C:\\proj", "src/a.ts"),
        ("\\\\srv\\share\\a.txt", "", "//srv/share/a.txt"),
        ("/p/a.py", "", "/p/a.py"),
    ],
)
def test_relative_path(path: str, cwd: str, expected: str) -> None:
    assert relative_path(path, cwd) == expected


def test_file_like() -> None:
    assert [p for p in ("a/b.py", "Makefile", ".env", "src", "a/b", "x.", ".", "../..") if is_file_like(p)] == [
        "a/b.py",
        "Makefile",
        ".env",
    ]


@settings(deadline=None)
@given(st.text(max_size=300), st.text(max_size=30))
def test_any_text_gives_distinct_single_line_paths(text: str, cwd: str) -> None:
    paths = text_paths(text, cwd)
    assert len(paths) == len(set(paths))
    assert all(path and "\n" not in path and "\\" not in path and len(path) <= MAX_PATH_CHARS for path in paths)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["`", '"', "'", ".py", "a.py", "/", "\\", " ", "~/", "C:\\", "x", "\n", "@", "://", ":1"]))
)
def test_path_soup_never_fails(parts: list[str]) -> None:
    assert text_paths("".join(parts), "C:\\a") == text_paths("".join(parts), "C:\\a")


def test_long_texts_take_linear_work() -> None:
    for text in ("a.b" * 400_000, "`x.py" * 200_000, "x.py' " * 100_000, "。a.py" * 100_000):
        assert len(text_paths(text, "/p")) < 5
