"""Rooms: where in the palace an exchange belongs.

An exchange gets one to three rooms from its files and words alone (no corpus statistics), so the same exchange gets
the same rooms in every run. Keys are snake_case and specific; labels derive from keys. Also normalises the room
names that an LLM gives, so that "Auth", "authn" and "authentication" meet in one room.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from backfill.paths import is_file_like, word_set
from backfill.types import Exchange, FileTouched, RoomAssignment, RoomType

MAX_ROOMS = 3
MAX_KEY_WORDS = 4
MAX_KEY_CHARS = 48
FALLBACK_KEY = "general_conversation"
RELEVANCE = (1.0, 0.75, 0.5)
_SCANNED_CHARS = 400
_SCANNED_AGENT_CHARS = 240

STOP_WORDS = word_set(
    """
    a an the and or but if then else so of in on at to from for with without by as is are was were be been being am do
    does did done doing have has had having can could should would will shall may might must need needs needed i me my
    we us our you your he him his she her it its they them their this that these those there here what which who when
    where why how not no yes ok okay also just only very really too more most some any all each every other another
    such than into onto over under about after before between again now still yet up down out off let lets get gets got
    go going gone make makes made making use uses used using want wants try trying tried please thanks thank hi hello
    hey like new one two three first last next same way thing things something anything everything lot bit well good
    great sure right know think see look looks looking seems seem say says said tell ask asked give given take put keep
    work works working currently actually maybe probably currently already instead because since while until though
    don dont doesn didn isn aren wasn won cant couldn shouldn wouldn ve re ll im ive thats whats gonna via per etc
    """
)
_GENERIC_KEYS = word_set(
    """
    error errors bug bugs issue issues problem problems code file files change changes task tasks question questions
    misc general other unknown none various stuff fix fixes update updates feature features test tests project
    conversation discussion concept workflow development programming software work help text string value data
    """
)
_SYNONYMS = {
    "authentication": "auth",
    "authenticate": "auth",
    "authenticated": "auth",
    "authn": "auth",
    "authorization": "authz",
    "authorisation": "authz",
    "configuration": "config",
    "configurations": "config",
    "configs": "config",
    "cfg": "config",
    "database": "db",
    "databases": "db",
    "postgres": "postgresql",
    "repository": "repo",
    "repositories": "repo",
    "directory": "dir",
    "directories": "dir",
    "environment": "env",
    "dependencies": "dependency",
    "deps": "dependency",
    "documentation": "docs",
    "doc": "docs",
    "kubernetes": "k8s",
    "javascript": "js",
    "typescript": "ts",
    "retries": "retry",
    "timeouts": "timeout",
    "migrations": "migration",
    "tests": "test",
    "testing": "test",
    "deployment": "deploy",
    "deploying": "deploy",
    "performance": "perf",
}
_ACRONYMS = word_set(
    "api cli url http https json sql ci cd ui id css html ssh jwt mcp llm gpu cpu db ip tcp dns pr ux yaml csv xml"
)
_GENERIC_STEMS = word_set("index main mod init lib app readme utils util types setup config server client common base")
_WORKFLOWS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (key, tuple(triggers.split("|")), re.compile(pattern))
    for key, triggers, pattern in (
        ("merge_conflict", "conflict", r"merge conflict|conflict marker|rebase conflict"),
        ("git_rebase", "rebas|cherry-pick", r"\brebas(?:e|ed|ing)\b|cherry-pick"),
        (
            "pull_request_review",
            "pull request|review|pr ",
            r"pull request|\bpr (?:review|comment|feedback|#?\d)|review comments?|code review",
        ),
        ("git_commit", "commit|squash", r"\bgit commit|\bcommit (?:this|it|that|message|and push|the changes)|squash"),
        ("ci_pipeline", "ci |ci.|actions|pipeline|workflows", r"\bci\b|github actions?|pipeline|\.github/workflows"),
        (
            "failing_test_repair",
            "fail|broken|broke|flaky",
            r"(?:fail(?:s|ed|ing)?|broken|flaky) (?:\w+ )?(?:tests?|suite)|tests? (?:\w+ )?(?:fail|broke)",
        ),
        ("test_writing", "test", r"(?:add|write|writing|more|missing) (?:\w+ ){0,2}tests?\b|test coverage"),
        ("lint_formatting", "lint|prettier|formatter|ruff", r"\blint(?:er|ing)?\b|prettier|formatter|\bruff\b|eslint"),
        (
            "dependency_upgrade",
            "upgrade|bump|update|npm",
            r"(?:upgrade|bump|update) (?:\w+ ){0,2}(?:dependenc|package|version)|npm install",
        ),
        ("schema_migration", "migration|alter table|schema", r"migration|alter table|schema change"),
        ("deployment", "deploy|rollout|roll out|rollback", r"\bdeploy(?:ed|ing|ment|s)?\b|roll ?out|rollback"),
        (
            "release_versioning",
            "changelog|release|publish|version",
            r"changelog|\brelease (?:notes?|v?\d)|publish(?:ing)? (?:to|the)|version bump",
        ),
        (
            "performance_tuning",
            "slow|latency|throughput|profil|performance|optimi",
            r"\bslow(?:er)?\b|latency|throughput|profil(?:e|er|ing)\b|performance|optimi[sz]",
        ),
        (
            "refactoring",
            "refactor|clean|rename|simplif|deduplicat|extract",
            r"refactor|clean ?up|rename|simplif|deduplicat|extract (?:a|the|into)",
        ),
        (
            "bug_diagnosis",
            "root cause|trace|crash|debug|bug|why",
            r"root cause|stack ?trace|traceback|crash(?:es|ed|ing)?\b|debug|\bbug\b|why (?:is|does|did|are)",
        ),
        ("documentation_writing", "readme|docstring|doc", r"readme|docstring|documentation|\bdocs?\b"),
        (
            "design_planning",
            "plan|architecture|design|proposal|trade",
            r"\bplan\b|architecture|design (?:doc|decision|of)|proposal|trade-?off",
        ),
    )
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_KEY_WORD = re.compile(r"[^\W_]+")
_TERM = re.compile(r"[^\W\d_][\w'-]*[^\W_]|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_ASCII_TERM = re.compile(r"[A-Za-z][\w'-]*[A-Za-z0-9]", re.ASCII)  # the same of a text without other letters
_TICKED = re.compile(r"`([A-Za-z_][\w.]{2,40})(?:\(\))?`")
_HUMP = re.compile(r"[a-z0-9][A-Z]")
_TEST_AFFIX = re.compile(r"^test_|_test$|\.(?:test|spec)$|_spec$|Test$|Tests$")


def rooms_of(exchange: Exchange, files: Sequence[FileTouched]) -> tuple[RoomAssignment, ...]:
    """One to three rooms: the file worked on, the concept talked about, the workflow."""
    pairs: list[tuple[RoomType, str]] = []
    concept = _concept(exchange.user_text[:_SCANNED_CHARS], exchange.agent_text[:_SCANNED_AGENT_CHARS])
    file_key = next((key for file in files[:8] if is_file_like(file.path) and (key := file_room_key(file.path))), "")
    if file_key:
        pairs.append(("file", file_key))
    if concept:
        pairs.append(("concept", concept))
    workflow = _workflow(exchange.user_text[:_SCANNED_CHARS].lower())
    if not workflow:
        workflow = _workflow(exchange.agent_text[:_SCANNED_AGENT_CHARS].lower())
    if workflow:
        pairs.append(("workflow", workflow))
    return rooms_from(pairs)


def rooms_from(pairs: Sequence[tuple[RoomType, str]]) -> tuple[RoomAssignment, ...]:
    """Rooms from (type, name) pairs in order of relevance, names normalised, repeats and empty names left out.

    A generic name ("errors") gives way to the others; with nothing left, the one room is `general_conversation`.
    """
    keys: dict[str, RoomType] = {}
    for room_type, name in pairs:
        key = normalise_key(name)
        if key and key not in _GENERIC_KEYS:
            keys.setdefault(key, room_type)
    if not keys:
        keys[FALLBACK_KEY] = "concept"
    chosen = list(keys.items())[:MAX_ROOMS]
    return tuple(
        RoomAssignment(room_type, key, room_label(key), relevance)
        for (key, room_type), relevance in zip(chosen, RELEVANCE, strict=False)
    )


def room_label(key: str) -> str:
    """The key as people read it: "retry_timeout" is "Retry timeout", "api_key" is "API key"."""
    words = [word.upper() if word in _ACRONYMS else word for word in key.split("_")]
    label = " ".join(words)
    return label[:1].upper() + label[1:]


@lru_cache(maxsize=8192)
def normalise_key(text: str) -> str:
    """snake_case key: accents folded, CJK kept, stop words out, common synonyms joined; at most 4 words, 48 chars.

    Empty where nothing is left.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text[:400])
        text = unicodedata.normalize(
            "NFC", "".join(c for c in text if not unicodedata.combining(c) or c in "\u3099\u309a")
        )
    words: list[str] = []
    for word in _KEY_WORD.findall(_CAMEL.sub("_", text[:400])):
        word = word.lower()
        word = _SYNONYMS.get(word, word)
        if word not in STOP_WORDS and word not in words:
            words.append(word)
    key = ""
    for word in words[:MAX_KEY_WORDS]:
        joined = f"{key}_{word}" if key else word[:MAX_KEY_CHARS]
        if len(joined) > MAX_KEY_CHARS:
            break
        key = joined
    return key


def file_room_key(path: str) -> str:
    """Key of a file's room: its name without extension and test affixes, with its folder where the name is common.

    Code and its tests share a room ("clean.go" and "clean_test.go" are "clean", below "cli/" "cli_clean").
    """
    folder, _, name = path.rstrip("/").rpartition("/")
    stem = name.partition(".")[0] if not name.startswith(".") else name.strip(".").replace(".", "_")
    stem = _TEST_AFFIX.sub("", stem) or stem
    parent = folder.rpartition("/")[2]
    key = normalise_key(stem)
    if (
        parent
        and parent not in ("src", "~", "..", "tests", "test")
        and ("_" not in key or stem.lower() in _GENERIC_STEMS)
    ):
        key = normalise_key(f"{parent}_{stem}") or key
    if not folder and "_" not in key and "." in name and not name.startswith("."):
        key = normalise_key(name.replace(".", "_")) or key
    return key


def _concept(user_text: str, agent_text: str) -> str:
    """The best term: a code name or a pair of neighbouring content words, weighed by repetition and by speaker."""
    scores: dict[str, float] = {}
    singles: dict[str, float] = {}
    for weight, text in ((2.0, user_text), (1.0, agent_text)):
        if "`" in text:
            for name in _TICKED.findall(text)[:20]:
                scores[name] = scores.get(name, 0.0) + weight
        _count_terms(text, weight, scores, singles)
    for term in scores:
        if " " in term:
            first, second = term.split(" ")
            scores[term] += 0.25 * (min(singles[first], 6.0) + min(singles[second], 6.0))
    for term in sorted(scores, key=scores.__getitem__, reverse=True)[:8]:
        key = normalise_key(term)
        if "_" in key:
            return key
    for term in sorted(singles, key=singles.__getitem__, reverse=True)[:8]:
        key = normalise_key(term)
        if key and key not in _GENERIC_KEYS:
            return key
    return ""


def _count_terms(text: str, weight: float, scores: dict[str, float], singles: dict[str, float]) -> None:
    """Adds the content words of a text to `singles`, its identifiers and neighbouring content words to `scores`."""
    previous = ""
    end = 0
    for match in (_ASCII_TERM if text.isascii() else _TERM).finditer(text):
        raw = match[0]
        word = raw.lower()
        if word in STOP_WORDS or len(word) < 2 or "'" in word:
            previous = ""
            continue
        singles[word] = singles.get(word, 0.0) + weight
        if "_" in word or (raw != word and _HUMP.search(raw)):
            scores[raw] = scores.get(raw, 0.0) + weight
        elif previous and match.start() - end == 1 and text[end] == " ":
            pair = f"{previous} {word}"
            scores[pair] = scores.get(pair, 0.0) + weight
        previous, end = word, match.end()


def _workflow(text: str) -> str:
    """The first workflow that the text speaks of; plain substring triggers save most of the pattern searches."""
    for key, triggers, pattern in _WORKFLOWS:
        for trigger in triggers:
            if trigger in text:
                if pattern.search(text):
                    return key
                break
    return ""
