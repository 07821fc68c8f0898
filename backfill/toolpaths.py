"""Files that tool calls name and what they did to them; the files an exchange touched.

A table of tool names over all agents, then general rules on names and argument keys for tools nobody has seen yet.
Reads arguments and, for writes, the beginning of the result; deliberately never asks an LLM and never reads a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from backfill.paths import MAX_PATH_CHARS, is_file_like, relative_path, text_paths, word_set
from backfill.shellpaths import command_paths, diff_paths, patch_paths
from backfill.types import ACTION_RANK, Exchange, FileAction, FileOrigin, FileTouched

__all__ = ["files_touched", "text_paths", "tool_paths"]

_READ = """
read readfile viewfile view open openfile readmanyfiles readmultiplefiles notebookread readnotebook readlines
readtextfile readmediafile getfile getfilecontents cat viewcode viewfileoutline readfiles readpartialfile fileread
showfile viewimage loadfile
"""
_WRITE = """
write writefile writetofile createfile create createnewfile newfile savefile createtextfile filewrite writefiles
createorupdatefile createnotebook createnewjupyternotebook savetofile
"""
_EDIT = """
edit editfile multiedit notebookedit replace replaceinfile strreplace applydiff insertcontent searchandreplace
searchreplace insert inserteditintofile insertintofile editnotebook editnotebookfile editnotebookcell
replacestringinfile multireplacestringinfile appendtofile append appendfile updatefile modifyfile rewritefile
undoedit fileedit morphedit editblock replacefilecontent multireplacefilecontent editfiles replacelines insertlines
deletelines replacesymbolbody insertaftersymbol insertbeforesymbol replaceregex
"""
_DELETE = "delete deletefile remove removefile rm unlink deletefiles filedelete"
_MOVE = "move movefile rename renamefile mv filemove"
_COPY = "copy copyfile cp filecopy"
_SEARCH = """
grep glob ls list listdir listfiles listdirectory searchfiles searchfilecontent ripgrep find findfile findfiles
grepsearch filesearch searchfile searchdir codebasesearch listcodedefinitionnames directorytree semanticsearch
listdirectorywithsizes globfilesearch findbyname search listcodeusages searchtext
"""
_SHELL = """
bash shell execute exec executecommand execcommand runshellcommand runterminalcmd runterminalcommand runterminal
runinterminal runcommand localshell localshellcall shellcommand shellexec terminal powershell cmd executebash
commandexecution container.exec bashoutput
"""
_PATCH = "applypatch patch applydiffs applypatchtool gitapply"
_EDITOR = "strreplaceeditor strreplacebasededittool strreplacebasededit texteditor editortool fileeditor"

_TABLE: dict[str, str] = {
    name: kind
    for kind, names in (
        ("read", _READ),
        ("created", _WRITE),
        ("edited", _EDIT),
        ("deleted", _DELETE),
        ("move", _MOVE),
        ("copy", _COPY),
        ("search", _SEARCH),
        ("shell", _SHELL),
        ("patch", _PATCH),
        ("editor", _EDITOR),
    )
    for name in names.split()
}
_EDITOR_COMMANDS: dict[str, FileAction] = {"view": "read", "create": "created", "open": "read"}
_VERBS: tuple[tuple[str, FileAction], ...] = (
    ("delet|remov|unlink", "deleted"),
    ("creat|write|save|upload", "created"),
    ("edit|replace|insert|updat|patch|modif|append|rename|rewrit", "edited"),
    ("read|view|open|load|show|cat", "read"),
)
_PATH_KEYS = word_set(
    """
    filepath path notebookpath filename file targetfile relativepath absolutepath relativeworkspacepath fullpath
    abspath uri paths files filepaths filenames pathinproject inputfile outputfile sourcefile targetpath
    targetnotebook documentpath searchpath
    """
)
_NESTED_KEYS = word_set("edits args file files operations changes input params arguments")
_SOURCE_KEYS = word_set("source src from oldpath sourcepath oldname frompath path filepath sourcefile")
_TARGET_KEYS = word_set("destination dest dst to newpath targetpath destinationpath newname topath target")
_COMMAND_KEYS = word_set("command cmd script commands commandline code")
_PATCH_KEYS = word_set("input patch patchtext diff content patchcontent")

_UPDATED = re.compile(
    r"has been (?:updated|overwritten)|\boverwr(?:ote|itten)\b|successfully (?:updated|modified)|\AUpdated\b"
)
_MAX_KEY_CHARS = 64  # the longest name in the tables has half as many
_UNWRITABLE = re.compile(r"[\n\r\x00]|^(?!file:)[A-Za-z][\w+.-]+://|^data:")
_CREATED = re.compile(r"creat", re.IGNORECASE)
_REFUSED = re.compile(
    r"\s*(?:<tool_use_error>|The user doesn't want to|File (?:has not been read|does not exist)|String to replace not"
    r" found|apply_patch verification failed|The user rejected|User rejected)"
)


def tool_paths(name: str, arguments: Any, result_text: str | None, cwd: str) -> list[tuple[str, FileAction]]:
    """The files that a tool call names, with what it did to each; a file may come up more than once.

    `arguments` may be an object, its JSON text or free text (a patch); anything else names no file. Paths are
    as `relative_path` writes them. A call that was refused only references its files. Never raises on odd arguments.
    """
    kind = _kind(name[:MAX_PATH_CHARS])
    if isinstance(arguments, str):
        arguments = _parse(arguments, kind)
    if not isinstance(arguments, Mapping):
        return []
    rows: list[tuple[str, FileAction]] = []
    for path, action in _raw(name, kind, arguments, result_text or ""):
        if not _writable(path):
            continue
        path = relative_path(path, cwd)
        if path and (path, action) not in rows:
            rows.append((path, action))
    return rows


def files_touched(exchange: Exchange) -> tuple[FileTouched, ...]:
    """One row a path with its strongest action, tool calls before text; strongest first, then first mention."""
    best: dict[str, tuple[FileAction, FileOrigin]] = {}
    for tool in exchange.tools:
        for path, action in zip(tool.paths, tool.actions, strict=False):
            held = best.get(path)
            if held is None or ACTION_RANK[action] > ACTION_RANK[held[0]]:
                best[path] = (action, "tool")
    for path in exchange.text_paths:
        best.setdefault(path, ("referenced", "text"))
    rows = [FileTouched(path, action, origin) for path, (action, origin) in best.items()]
    rows.sort(key=lambda row: (-ACTION_RANK[row.action], row.origin != "tool"))
    return tuple(rows)


@lru_cache(maxsize=1024)
def _kind(name: str) -> str:
    """Table entry of a tool (the beginning of its name): a kind, or an action by the verb in it, or nothing."""
    bare = name.rpartition("__")[2] if name.startswith("mcp__") else name
    bare = re.sub(r"[^a-z0-9.]", "", bare.lower())
    for candidate in (bare, bare.rpartition(".")[2], bare.removesuffix("tool"), bare.removesuffix("v2")):
        if candidate in _TABLE:
            return _TABLE[candidate]
    if "file" in bare or "notebook" in bare:
        for pattern, action in _VERBS:
            if re.search(pattern, bare):
                return action
    return ""


def _parse(text: str, kind: str) -> Mapping[str, Any]:
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = msgspec.json.decode(text.encode("utf-8", "replace"))
        except (msgspec.DecodeError, RecursionError):
            value = None
        if isinstance(value, dict):
            return value
        if isinstance(value, list):
            return {"command": value} if kind == "shell" else {"edits": value}
    if "*** Begin Patch" in text or kind == "patch":
        return {"input": text}
    if kind == "shell":
        return {"command": text}
    return {"path": text.strip()} if is_file_like(text.strip().replace("\\", "/")) else {}


def _raw(name: str, kind: str, arguments: Mapping[str, Any], result: str) -> Iterator[tuple[str, FileAction]]:
    """Yields paths as written and what the call did to them."""
    if kind == "shell" or (not kind and _has(arguments, _COMMAND_KEYS) and not _has(arguments, _PATH_KEYS)):
        for command in _commands(arguments):
            yield from command_paths(command)
        return
    if kind == "patch" or (not kind and _holds_patch(arguments)):
        yield from _patched(arguments, result)
        return
    if kind in ("move", "copy"):
        for path in _named(arguments, _SOURCE_KEYS):
            yield path, "deleted" if kind == "move" else "read"
        for path in _named(arguments, _TARGET_KEYS):
            yield path, "created"
        return
    action = _action(kind, arguments, result)
    for path in _named(arguments, _PATH_KEYS | {"dir"} if kind == "search" else _PATH_KEYS):
        if kind in ("search", "") and not is_file_like(path.replace("\\", "/")):
            continue
        if action == "read" and ("*" in path or result.startswith("Here's the files and directories")):
            continue
        yield path, action


def _action(kind: str, arguments: Mapping[str, Any], result: str) -> FileAction:
    if kind == "editor":
        command = str(arguments.get("command", ""))
        kind = _EDITOR_COMMANDS.get(command, "edited") if command else "read"
    if kind in ("created", "edited", "deleted", "read") and _REFUSED.match(result):
        return "referenced"
    if kind == "created":
        head = result[:300]
        created = _CREATED.search(head)
        updated = _UPDATED.search(head)
        return "edited" if updated and not (created and created.start() < updated.start()) else "created"
    if kind == "search":
        return "read"
    if kind == "edited" and arguments.get("old_string") == "" and _CREATED.search(result[:300]):
        return "created"
    return kind if kind in ("edited", "deleted", "read") else "referenced"  # type: ignore[return-value]


def _patched(arguments: Mapping[str, Any], result: str) -> Iterator[tuple[str, FileAction]]:
    refused = bool(_REFUSED.match(result))
    texts = [v for k, v in arguments.items() if isinstance(v, str) and _plain(k) in _PATCH_KEYS | _COMMAND_KEYS]
    found: list[tuple[str, FileAction]] = []
    for text in texts:
        found.extend(patch_paths(text) if "*** " in text else diff_paths(text))
    if not found:
        found = [(path, "edited") for path in _named(arguments, _PATH_KEYS)]
    for path, action in found:
        yield path, "referenced" if refused else action


def _commands(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if _plain(key) not in _COMMAND_KEYS:
            continue
        if isinstance(value, str):
            yield value
        elif isinstance(value, list) and all(isinstance(word, str) for word in value):
            inline = len(value) >= 3 and re.fullmatch(r"-[a-z]*c|/c|-Command", value[-2])
            yield value[-1] if inline else " ".join(_quote(word) for word in value)


def _quote(word: str) -> str:
    return word if re.fullmatch(r"[\w@%+=:,./\\|&;<>-]+", word) else "'" + word.replace("'", "'\"'\"'") + "'"


def _named(arguments: Mapping[str, Any], keys: Iterable[str], depth: int = 0) -> Iterator[str]:
    """Yields the path values of the argument keys, looking into lists and into nested argument objects."""
    for key, value in arguments.items():
        plain = _plain(key)
        if plain in keys:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                yield from (item for item in value[:200] if isinstance(item, str))
        if depth < 3 and plain in _NESTED_KEYS:
            for item in value[:200] if isinstance(value, list) else [value]:
                if isinstance(item, Mapping):
                    yield from _named(item, keys, depth + 1)


def _has(arguments: Mapping[str, Any], keys: frozenset[str]) -> bool:
    return any(_plain(key) in keys for key in arguments)


def _holds_patch(arguments: Mapping[str, Any]) -> bool:
    return any(isinstance(value, str) and "*** Begin Patch" in value for value in arguments.values())


def _plain(key: str) -> str:
    return _plain_name(key) if len(key) <= _MAX_KEY_CHARS else ""


@lru_cache(maxsize=1024)
def _plain_name(key: str) -> str:
    return key.lower().replace("_", "").replace("-", "")


def _writable(path: str) -> bool:
    """Whether a value can be a path at all: short, of one line, no URL."""
    return 0 < len(path) <= MAX_PATH_CHARS and not _UNWRITABLE.search(path)
