"""Files that a shell command names, and what it plainly does to them.

A tolerant reader of POSIX and PowerShell command lines: it never raises, expands nothing, and leaves out what is not
plain (variables, globs, substitutions). Also reads apply_patch bodies and unified diffs, which agents hand to a tool
or to a here-document. Deliberately absent: control flow; every branch of a command line counts as run.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from backfill.paths import is_file_like, word_set
from backfill.types import FileAction

MAX_COMMAND_CHARS = 32_768
_MAX_DEPTH = 3

_PATCH_LINE = re.compile(r"^\s*\*\*\* (Add File|Update File|Delete File|Move to): (.+?)\s*$", re.MULTILINE)
_PATCH_BODY = re.compile(r"\*\*\* Begin Patch.*?(?:\*\*\* End Patch|\Z)", re.DOTALL)
_DIFF_PAIR = re.compile(
    r"^--- (?:a/)?([^\t\n]+?)(?:\t[^\n]*)?\r?\n\+\+\+ (?:b/)?([^\t\n]+?)(?:\t[^\n]*)?\r?$", re.MULTILINE
)
_HEREDOC = re.compile(
    r"<<-?[ \t]*(['\"]?)([A-Za-z_][\w]*)\1([^\n]*)\n(.*?)(?:^[ \t]*\2[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_WORD = re.compile(
    r"(?P<space>[ \t\r]+|\\\r?\n)|(?P<comment>(?<![^\s;|&])#[^\n]*)|"
    r"(?P<op>\d?>>|\d?>\||&>>?|\d?>&\d?|\d?>|<<<|<|\|\||&&|[|;&\n()])"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\\|[^\s'\"\\|;&<>()]|['\"])+)",
    re.DOTALL,
)
_PIECE = re.compile(r"'([^']*)'|\"((?:\\.|[^\"\\])*)\"|\\([\s'\"\\$`()&;|<>*?\[\]#!{}])|(.)", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_APPLIES = re.compile(r"\b(?:git apply|patch)\b")
_INLINE = re.compile(r"-[a-z]*c|/[cC]|-Command")
_ROOTED = re.compile(r"[A-Za-z]:[\\/]")
_NOT_PLAIN = re.compile(r"[$`*?\n]|\{[^}]*,|://|^-|^\d+$")

_WRAPPERS = word_set("sudo time env nohup command exec builtin nice stdbuf doas then do else if while until ! {")
_SHELLS = word_set("bash sh zsh dash ksh fish pwsh powershell powershell.exe cmd cmd.exe")
_READERS = word_set(
    """
    cat head tail less more nl tac bat batcat wc xxd hexdump od file diff cmp md5sum sha256sum sort uniq cut source .
    type get-content gc view strings column fold stat open
    """
)
_PATTERN_READERS = word_set("grep egrep fgrep rg ag awk gawk jq yq sed")
_SILENT = word_set(
    "echo printf cd pushd mkdir ls pwd export find test [ [[ kill sleep which alias set read for case true"
)
_VALUE_FLAGS = word_set("-n -c -A -B -C -m -e -f -g -t --type --include --exclude -k -d -F -v --arg --max-count")


def command_paths(command: str, depth: int = 0) -> Iterator[tuple[str, FileAction]]:
    """Yields (path, action) of a command line, paths relative to where it starts as far as plain `cd` tells."""
    command = command[:MAX_COMMAND_CHARS]
    if "*** Begin Patch" in command:
        for body in _PATCH_BODY.findall(command):
            yield from patch_paths(body)
        command = _PATCH_BODY.sub("", command)
    if "<<" in command:
        if _APPLIES.search(command):
            for match in _HEREDOC.finditer(command):
                yield from diff_paths(match[4])
        command = _HEREDOC.sub(lambda m: m[3] + "\n", command)
    base = ""
    for words, redirects in _simple_commands(command):
        argv = _unwrap(words)
        for operator, target in redirects:
            yield from _at(base, [target], _redirect_action(operator))
        if not argv:
            continue
        name = argv[0].replace("\\", "/").rpartition("/")[2].lower()
        if name in ("cd", "pushd", "set-location") and len(argv) > 1:
            base = _change(base, argv[1])
        elif name in _SHELLS and depth < _MAX_DEPTH and (inner := _inline(argv)):
            for path, action in command_paths(inner, depth + 1):
                yield from _at(base, [path], action)
        else:
            yield from _arguments(name, argv, base)


def patch_paths(text: str) -> Iterator[tuple[str, FileAction]]:
    """Yields (path, action) of an apply_patch body; a move deletes its source and creates its target."""
    updated = ""
    for kind, path in _PATCH_LINE.findall(text):
        if updated and kind == "Move to":
            yield updated, "deleted"
            yield path, "created"
            updated = ""
            continue
        if updated:
            yield updated, "edited"
        updated = path if kind == "Update File" else ""
        if kind == "Add File":
            yield path, "created"
        elif kind == "Delete File":
            yield path, "deleted"
    if updated:
        yield updated, "edited"


def diff_paths(text: str) -> Iterator[tuple[str, FileAction]]:
    """Yields (path, action) of the files of a unified diff."""
    for old, new in _DIFF_PAIR.findall(text):
        if new == "/dev/null":
            yield old, "deleted"
        elif old == "/dev/null":
            yield new, "created"
        else:
            if old != new:
                yield old, "deleted"
            yield new, "edited" if old == new else "created"


def _simple_commands(command: str) -> Iterator[tuple[list[str], list[tuple[str, str]]]]:
    """Yields the words and the (operator, target) redirections of each simple command."""
    words: list[str] = []
    redirects: list[tuple[str, str]] = []
    pending = ""
    for match in _WORD.finditer(command):
        kind = match.lastgroup
        if kind == "word":
            word = _unquote(match[0])
            if pending:
                redirects.append((pending, word))
                pending = ""
            else:
                words.append(word)
        elif kind == "op":
            operator = match[0]
            if operator[-1] in "<>|&" and ("<" in operator or ">" in operator):
                pending = operator
            elif operator[-1].isdigit():
                pending = ""
            else:
                yield words, redirects
                words, redirects, pending = [], [], ""
    yield words, redirects


def _unquote(word: str) -> str:
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    pieces: list[str] = []
    for match in _PIECE.finditer(word):
        single, double, escaped, plain = match.groups()
        if double is not None:
            pieces.append(re.sub(r"\\([\"\\$`])", r"\1", double))
        elif single is not None:
            pieces.append(single)
        else:
            pieces.append(escaped or ("" if plain in "'\"" else plain))
    return "".join(pieces)


def _unwrap(words: list[str]) -> list[str]:
    start = 0
    while start < len(words) and (words[start] in _WRAPPERS or _ASSIGNMENT.match(words[start])):
        start += 1
    if start < len(words) and words[start] == "timeout":
        start += 2
    return words[start:]


def _inline(argv: list[str]) -> str:
    for position, word in enumerate(argv[1:-1], 1):
        if word[-1:] in "cCd" and _INLINE.fullmatch(word):
            return argv[position + 1]
    return ""


def _change(base: str, target: str) -> str:
    if "$" in target or "`" in target or target == "-":
        return base
    target = target.replace("\\", "/")
    if target.startswith(("/", "~")) or _ROOTED.match(target):
        return target.rstrip("/") or "/"
    return posixpath.normpath(posixpath.join(base, target)) if base else posixpath.normpath(target)


def _redirect_action(operator: str) -> FileAction:
    if "<" in operator:
        return "read"
    return "edited" if ">>" in operator else "created"


def _at(base: str, paths: list[str], action: FileAction) -> Iterator[tuple[str, FileAction]]:
    for path in paths:
        if not path or len(path) > 512 or _NOT_PLAIN.search(path) or path.startswith(("/dev/", "&")) or path == "-":
            continue
        if base and base != "." and not path.startswith(("/", "~", "\\")) and not _ROOTED.match(path):
            path = posixpath.normpath(posixpath.join(base, path.replace("\\", "/")))
        yield path, action


def _arguments(name: str, argv: list[str], base: str) -> Iterator[tuple[str, FileAction]]:
    """Yields what one simple command does to its operands."""
    flags = [w for w in argv[1:] if w.startswith("-") and len(w) > 1]
    operands = [w for w in argv[1:] if w and not (w.startswith("-") and len(w) > 1)]
    if name == "git" and operands:
        name, operands = f"git {operands[0]}", operands[1:]
    if name in ("rm", "unlink", "git rm", "del", "remove-item", "ri", "trash", "rimraf"):
        recursive = any(re.match(r"-[a-zA-Z]*[rR]", f) for f in flags)
        yield from _at(base, [p for p in operands if is_file_like(_slash(p)) or not recursive], "deleted")
    elif name in ("mv", "git mv", "move", "move-item", "cp", "copy", "copy-item", "install"):
        yield from _transfer(operands, base, "deleted" if "m" in name and "cp" not in name else "read")
    elif name in ("touch", "new-item", "set-content", "out-file", "truncate"):
        yield from _at(base, operands[:1] if "-" in name else operands, "created")
    elif name in ("tee", "add-content"):
        appends = name != "tee" or "-a" in flags or "--append" in flags
        yield from _at(base, operands, "edited" if appends else "created")
    elif name in ("ln", "git restore") and operands:
        yield from _at(base, operands[-1:] if name == "ln" else operands, "created" if name == "ln" else "edited")
    elif name == "sed" and any(re.match(r"-[nErs]*i|--in-place", f) for f in flags):
        yield from _at(base, _after_pattern(argv), "edited")
    elif name == "perl" and any(re.match(r"-[a-z0-9]*i", f) for f in flags):
        yield from _at(base, [p for p in operands if is_file_like(_slash(p))], "edited")
    elif name in _PATTERN_READERS:
        plain = name in ("sed", "awk", "gawk")
        paths = _after_pattern(argv)
        yield from _at(base, [p for p in paths if plain or is_file_like(_slash(p)) or "." in p[1:]], "read")
    elif name in _READERS:
        skip = {argv[i + 1] for i, w in enumerate(argv[:-1]) if w in ("-n", "-c")}
        yield from _at(base, [p for p in operands if p not in skip and not p.startswith("+")], "read")
    elif name not in _SILENT:
        yield from _mentions(argv, name, base)


def _transfer(operands: list[str], base: str, source_action: FileAction) -> Iterator[tuple[str, FileAction]]:
    if len(operands) < 2:
        return
    *sources, target = operands
    folder = target.endswith("/") or len(sources) > 1 or target in (".", "..")
    folder = folder or (not is_file_like(_slash(target)) and is_file_like(_slash(sources[0])))
    for source in sources:
        yield from _at(base, [source], source_action)
        name = _slash(source).rstrip("/").rpartition("/")[2]
        if _NOT_PLAIN.search(source):
            continue
        yield from _at(base, [f"{target.rstrip('/')}/{name}" if folder else target], "created")


def _after_pattern(argv: list[str]) -> list[str]:
    """Operands after the script or pattern of sed, grep, awk, jq; an option's own value is no operand."""
    operands: list[str] = []
    scripted = False
    skip = False
    for word in argv[1:]:
        if skip:
            skip = False
        elif word.startswith("-") and len(word) > 1:
            scripted = scripted or word in ("-e", "-f", "--expression", "--regexp")
            sed_quiet = argv[0].endswith(("sed", "grep", "rg")) and word in ("-n", "-c", "-v", "-F")
            skip = word in _VALUE_FLAGS and not sed_quiet
        elif word:
            operands.append(word)
    return operands if scripted else operands[1:]


def _mentions(argv: list[str], name: str, base: str) -> Iterator[tuple[str, FileAction]]:
    """Yields the file-like words of any other command; what a downloader or compiler writes with -o is created."""
    previous = ""
    for word in argv:
        value = word.partition("=")[2] if word.startswith("--") else word
        output = previous in ("-o", "-O", "--output", "-OutFile")
        message = previous in ("-m", "-c", "-e", "--message", "--title", "--body", "-t", "-b")
        previous = word
        value = value.partition("::")[0]
        if message or not value or " " in value or not is_file_like(_slash(value)):
            continue
        if value is argv[0] and "/" not in value:
            continue
        yield from _at(base, [value], "created" if output and name in ("curl", "wget", "iwr") else "referenced")


def _slash(path: str) -> str:
    return path.replace("\\", "/")
