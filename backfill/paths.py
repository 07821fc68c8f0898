"""File paths: how they are written in rows, and which words of a text are paths.

`relative_path` gives every path one spelling; `text_paths` finds the paths that prose names. Precision goes before
recall: a word without a slash counts only with a known source or configuration extension or as a known name.
Deliberately absent: any look at the file system; the transcript's machine is not this one.
"""

from __future__ import annotations

import posixpath
import re
from functools import lru_cache

MAX_PATH_CHARS = 512


def word_set(text: str) -> frozenset[str]:
    """The words of a text: long tables read better as prose than as a column of literals."""
    return frozenset(text.split())


EXTENSIONS = word_set(
    """
    py pyi pyx ipynb js jsx mjs cjs ts tsx mts cts vue svelte astro go rs java kt kts scala groovy gradle clj cljs edn
    c h cc cpp cxx hh hpp hxx cu cuh cs csproj sln fs fsx vb swift mm rb erb rake gemspec php pl pm lua r rmd jl ex exs
    erl hrl hs lhs ml mli elm nim zig dart sol asm wat wasm sh bash zsh fish ps1 psm1 bat cmd awk sql psql prisma
    graphql gql proto thrift avsc html htm xhtml css scss sass less styl hbs ejs jinja j2 tmpl tpl xml xsd xsl svg
    json json5 jsonc jsonl ndjson yaml yml toml ini cfg conf properties env plist lock tf tfvars hcl nix bzl bazel
    cmake mk dockerfile md mdx markdown rst txt adoc tex bib org csv tsv parquet arrow avro db sqlite sqlite3 log diff
    patch pdf doc docx xls xlsx ppt pptx odt rtf epub png jpg jpeg gif webp ico bmp tiff psd mp3 mp4 wav webm mov ttf
    otf woff woff2 zip tar gz tgz bz2 xz zst 7z jar war whl apk ipa exe dll dylib pem crt cer pub gpg asc tmp bak
    orig rej pid sock service timer onnx safetensors gguf pt pth ckpt npy npz pkl h5 snap map lcov traj ics eml
    sum mod work http rest feature storyboard xib pbxproj xcconfig entitlements resx xaml razor cshtml tcl vim el lisp
    """
)
"""Extensions, lower case, that make a bare word a file. Attribute-like ones are narrowed by `_is_attribute`."""

_SLASHED_EXTENSIONS = EXTENSIONS | word_set("m s v d y l o a so out bin key data text config class f90 f pas")

FILE_NAMES = word_set(
    """
    Dockerfile Containerfile Makefile GNUmakefile Jenkinsfile Vagrantfile Procfile Gemfile Rakefile Brewfile Podfile
    Fastfile Appfile Pipfile Justfile justfile Caddyfile Tiltfile Earthfile Guardfile Dangerfile Snakefile Berksfile
    Cartfile Doxyfile CODEOWNERS
    """
)
_SLASHED_NAMES = FILE_NAMES | word_set("README LICENSE NOTICE COPYING CHANGELOG AUTHORS VERSION makefile dockerfile")

_DOT_FILE = re.compile(
    r"\.(?:env(?:\.[\w-]+)*|envrc|git(?:ignore|attributes|modules|keep|config)|mailmap|editorconfig|npmrc|nvmrc|yarnrc"
    r"|flake8|pylintrc|coveragerc|bashrc|bash_profile|zshrc|zprofile|profile|vimrc|tmux\.conf|htaccess|netrc|inputrc"
    r"|python-version|ruby-version|node-version|tool-versions|DS_Store|browserslistrc|babelrc|swcrc|clang-format"
    r"|clang-tidy|cursorrules|windsurfrules|clinerules|mcp|[a-z][\w-]*(?:rc|ignore))"
    r"(?:\.(?:js|cjs|mjs|ts|json|yaml|yml|toml))?"
)
_PRODUCTS = word_set(
    """
    node next nuxt vue react express three d3 ember backbone angular alpine chart moment discord nest p5 require solid
    svelte knockout underscore handlebars mustache video babylon phaser pixi tensorflow brain ml5 plotly leaflet hammer
    anime typed particles pdf ethers web3 polymer cytoscape meteor sails koa hapi fastify electron deno bun preact
    lit stimulus
    """
)
_TLDS = word_set(
    "com org net io dev ai app co uk de fr jp cn ru eu gov edu info me tv xyz cloud internal local localhost"
)
_RECEIVERS = word_set(
    """
    self this cls console process math np numpy torch tf pd res resp response req request r e err error event evt ctx
    context obj args props window document logger log logging mutex os sys meta deno bun import.meta t s m x it item
    user data node element el app.config std fmt git session client server.config
    """
)
_ATTRIBUTES = word_set("log env json lock db zip c h r md sql html css sh map diff pid mod sum work http rest")
_LOCK_STEMS = word_set("yarn cargo poetry gemfile composer pipfile flake uv bun mix pdm pubspec podfile deno")
_NEVER_BARE = word_set("map mod sum work http rest feature service timer r")
_BARE_EXACT = word_set("go.mod go.sum go.work")

_TOKEN = re.compile(
    r"[A-Za-z]:[\\/][^\s\"'`<>|*?,;:()\[\]{}=。，、；：（）「」《》“”‘’]+"
    r"|(?:[/\\][\[(][\w.-]+[\])](?=[/\\])|[^\s\"'`<>|*?,;:()\[\]{}=。，、；：（）「」《》“”‘’!#])+"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'`<>)\]]*|\bwww\.[^\s\"'`<>)\]]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_ESCAPE = re.compile(r"\\[nrtux0\"']")
_SYSTEM_FILE = re.compile(r"/(?:etc|usr/(?:local/)?s?bin|s?bin)/[\w.@+-]+(?:/[\w.@+-]+)*")
_ANCHOR = re.compile(r"\.[A-Za-z/\\]")
_NAME_ANCHOR = re.compile(r"file(?!\w)")
_RARE_ANCHOR = re.compile(r"~[/\\]|:\\|/etc/|/bin/")
_WORD_END = re.compile(r"[^\s。，、；：！？（）「」《》]{0,1024}")
_SPACED_END = re.compile(r"(\.[A-Za-z0-9]{1,8})(?::\d+){0,2}[`\"']")
_NOT_IN_A_PATH = re.compile(r"[|;<>$&=(){}\"*?!]|://|(?:^|\s)-|\s{2}|,\s")
_COMMANDS = word_set(
    """
    cat sed git python python3 npm npx node run cd vim vi nano rm go make cp mv ls grep rg head tail less touch mkdir
    chmod chown docker kubectl cargo pip uv ruff mypy pytest bash sh zsh source code open curl wget yarn pnpm bun deno
    java javac gcc g++ clang ruby perl php awk jq diff tar unzip sudo env export import from echo tee find xargs ssh
    the to in is it see into was use edit read with this that fix add update delete remove create and or then const let
    var return new function def class if not are at by
    """
)


def relative_path(path: str, cwd: str) -> str:
    """The path with `/` as separator, relative to `cwd` where it lies below it, else as written.

    Drive letters and Windows paths compare without case. Empty where nothing is left (the path is `cwd` itself).
    """
    path = path.strip().strip("\"'`")
    if path.startswith("file://"):
        path = path[7:]
        path = path[1:] if _DRIVE.match(path, 1) else path
    if "\\" in path:
        path = path.replace("\\", "/")
    if "/../" in path or "/./" in path or "//" in path[1:] or path.endswith(("/.", "/..")):
        double = path.startswith("//")
        path = posixpath.normpath(path)
        path = "/" + path if double and not path.startswith("//") else path
    base, windows = _clean_cwd(cwd)
    if base:
        same = path[: len(base)].lower() == base.lower() if windows else path.startswith(base)
        if same and (len(path) == len(base) or path[len(base)] == "/"):
            path = path[len(base) + 1 :]
    while path.startswith("./"):
        path = path[2:].lstrip("/")
    return "" if path == "." else path


@lru_cache(maxsize=256)
def _clean_cwd(cwd: str) -> tuple[str, bool]:
    base = cwd.strip().replace("\\", "/").rstrip("/")
    return base, bool(_DRIVE.match(base + "/"))


def is_file_like(path: str) -> bool:
    """Whether the last segment has a known extension, is a known file name or a dot file. `path` uses `/`."""
    head, _, name = path.rpartition("/")
    if not name or name in (".", ".."):
        return False
    if name in _SLASHED_NAMES or _DOT_FILE.fullmatch(name):
        return True
    stem, dot, extension = name.rpartition(".")
    if not dot or not stem:
        return False
    known = _SLASHED_EXTENSIONS if head else EXTENSIONS
    return _extension(extension) in known or name.startswith(("Dockerfile.", "Makefile.", "Jenkinsfile."))


def is_path_word(word: str) -> bool:
    """Whether a word without quotes around it is a path, by the rules of `text_paths`."""
    return bool(_path_of(word, "", "", ""))


def text_paths(text: str, cwd: str) -> list[str]:
    """The paths that a text names, each once, in order of their first mention; as `relative_path` writes them."""
    anchors = [match.start() for match in _ANCHOR.finditer(text)]
    if "file" in text:
        anchors += [m.start() for m in _NAME_ANCHOR.finditer(text) if text[m.start() - 1 : m.start()].isalpha()]
    if "~" in text or ":\\" in text or "/etc/" in text or "/bin/" in text:
        anchors += [match.start() for match in _RARE_ANCHOR.finditer(text)]
    if not anchors:
        return []
    anchors.sort()
    spaced = _spaced_paths(text) if "`" in text or '"' in text or "'" in text else []
    found: dict[str, None] = {}
    seen: set[str] = set()
    done = 0
    for anchor in anchors:
        if anchor < done:
            continue
        low = max(done, anchor - MAX_PATH_CHARS)
        start = 1 + max(low - 1, *(text.rfind(space, low, anchor) for space in " \n\t"))
        while spaced and spaced[-1][1] <= anchor:
            spaced.pop()
        if spaced and spaced[-1][0] < anchor:
            _, done, path = spaced.pop()
            found[relative_path(path, cwd)] = None
            continue
        done = _WORD_END.match(text, anchor).end()  # type: ignore[union-attr]
        word = text[start:done]
        if word not in seen:
            seen.add(word)
            _collect(word, cwd, found)
    return list(found)


def _collect(word: str, cwd: str, found: dict[str, None]) -> None:
    if "://" in word or "www." in word:
        word = _URL.sub(" ", word)
    if "@" in word:
        word = _EMAIL.sub(lambda m: m[0] if m[0].endswith((".png", ".jpg", ".svg")) else " ", word)
    for match in _TOKEN.finditer(word):
        if len(match[0]) < 3:
            continue
        before = word[match.start() - 1] if match.start() else ""
        path = _path_of(match[0], before, word[match.end() :], cwd)
        if path:
            path = relative_path(path, cwd)
            if path:
                found[path] = None


def _path_of(token: str, before: str, after: str, cwd: str) -> str:
    """The path in a token, or nothing. `before` is the character before it, `after` the rest of its word."""
    token = token.rstrip(".…~_-!").lstrip("…@+_~" if "~/" not in token[:3] and "~\\" not in token[:3] else "@_")
    if len(token) < 3 or len(token) > MAX_PATH_CHARS or "$" in token or "%" in token or token.startswith("..."):
        return ""
    if "\\" in token and not _DRIVE.match(token) and not token.startswith("\\\\"):
        if _ESCAPE.search(token) and not _clean_cwd(cwd)[1]:
            return ""
        if "/" in token:
            return ""
    slashed = token.replace("\\", "/")
    if slashed[0] == "/" and before and before in "}>*)]$%":
        return ""
    if slashed.endswith("/") or (before == ":" and slashed[0].isdigit()):
        return ""
    if not token.isascii():
        slashed = _without_cjk_lead(slashed)
    if after.startswith("(") and not re.match(r"\(\d+[,)]", after):
        return ""
    accepted = _accept_slashed(slashed) if "/" in slashed else _accept_bare(slashed)
    return slashed if accepted else ""


def _accept_slashed(path: str) -> bool:
    if path.startswith(("./", "../", "~/")):
        return path.strip("./~") != "" and not path.endswith("...")
    first, _, rest = path.partition("/")
    if first[:1] == "." and len(first) > 1:
        return bool(re.fullmatch(r"\.[A-Za-z][\w-]*", first) and rest)
    if "." in first and (first.rpartition(".")[2].lower() in _TLDS or first.count(".") == 3):
        return False
    if is_file_like(path):
        return not path.startswith("//") or path.count("/") > 3
    if _SYSTEM_FILE.fullmatch(path):
        return True
    stem, dot, extension = path.rpartition("/")[2].rpartition(".")
    rooted = path[0] == "/" or path[1:3] == ":/" or path.count("/") >= 2
    return bool(rooted and dot and stem and re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,7}", extension))


def _accept_bare(name: str) -> bool:
    if name in FILE_NAMES or name in _BARE_EXACT:
        return True
    if name[0] == ".":
        return bool(_DOT_FILE.fullmatch(name))
    if name.startswith(("Dockerfile.", "Makefile.", "Jenkinsfile.")):
        return True
    stem, dot, extension = name.rpartition(".")
    ext = _extension(extension)
    if not dot or not stem or ext not in EXTENSIONS or not re.search(r"[^\W_]", stem) or "@" in name[:1]:
        return False
    low = stem.lower()
    if ext == "js" and low in _PRODUCTS:
        return False
    if ext in _ATTRIBUTES and low in _RECEIVERS:
        return False
    if ext == "lock":
        return low in _LOCK_STEMS or "-" in low
    if ext in _NEVER_BARE:
        return ext == "map" and low.endswith((".js", ".css", ".mjs"))
    return len(ext) > 1 or (len(stem) > 1 and "." not in stem)


def _extension(extension: str) -> str:
    """Lower case of an extension written in one case; mixed case ("done.So") is a missing space, not a file."""
    return extension.lower() if extension.islower() or extension.isupper() else ""


def _without_cjk_lead(path: str) -> str:
    """Drops CJK words glued to a path ("请看src/app.ts"); a CJK folder or name stays."""
    match = re.match(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+(?=[A-Za-z0-9._~])", path)
    if match and path[match.end()] != ".":
        path = path[match.end() :]
    tail = re.search(r"(?<=\.)([A-Za-z0-9]{1,8})[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+$", path)
    return path[: tail.end(1)] if tail else path


def _spaced_paths(text: str) -> list[tuple[int, int, str]]:
    """Quoted or back-ticked paths that hold spaces: (start, end, path) with the quotes, the last one first."""
    spans: list[tuple[int, int, str]] = []
    for match in _SPACED_END.finditer(text):
        end = match.end() - 1
        start = text.rfind(text[end], max(0, end - 200), match.start())
        if start < 0 or (text[end] == "'" and text[start - 1 : start].isalnum()):
            continue
        body = text[start + 1 : match.end(1)]
        if " " in body and "\n" not in body and _is_spaced_path(body):
            spans.append((start, end, body))
    return spans[::-1]


def _is_spaced_path(body: str) -> bool:
    slashed = body.replace("\\", "/")
    if body != body.strip() or _NOT_IN_A_PATH.search(body) or not is_file_like(slashed):
        return False
    words = body.split()
    if len(words) > 8 or any(word in _COMMANDS for word in words):
        return False
    return not any(is_file_like(word.replace("\\", "/")) and "/" in word for word in words[:-1]) and not any(
        _accept_bare(word) for word in words[:-1]
    )
