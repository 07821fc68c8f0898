"""Whether a value is a secret: randomness, placeholders, references to the environment.

Entropy is Shannon's per character, of the text itself. For n characters drawn from an alphabet of a it comes to at
most log2(min(n, a)) bits: 16 random hexadecimal digits show 3.2 bits on average (at most 4), 16 random letters and
digits 3.8 (at most 4), 32 of them 4.5; identifiers of 16 to 24 characters of English words show 3.2 to 3.7. So
entropy alone does not tell short tokens from names: digits and changes of character class decide beside it.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import re
from collections import Counter

_MIN_RANDOM_CHARS = 16
_MIN_BITS = 3.3
_MIN_HEX_BITS = 2.7  # 16 random hexadecimal digits fall below it once in about 90 times
# Of neighbours in random base62, 1 - (2 * 26**2 + 10**2) / 62**2 = 62% differ in class; in camelCase a third do.
_MIN_CLASS_CHANGES = 0.45
_JUDGED_CHARS = 200

_WORDLIKE = re.compile(r"[A-Za-z]+(?:[._/:@#|&?!-]{1,3}[A-Za-z]+){0,40}\d{0,2}[.:!?)]{0,4}", re.ASCII)
_CODE = re.compile(r"[A-Za-z_][\w.]{0,80}(?:\(|\[|\{|->|::)|[{(\[$%&*<]|.{0,60}(?:\$\{|\{\{|%\(|\$\()")
_TEMPLATE = re.compile(r"[$%]\{|\{\{|[%$]\(|^[{<\[$]|\{\w*\}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_DIGIT_INSIDE = re.compile(r"[A-Za-z]\d[A-Za-z]")
_UUID = re.compile(r"\{?[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\}?", re.IGNORECASE)
_CHECKSUM = re.compile(r"(?:sha(?:1|256|384|512)|md5|blake[23]\w?)[:=-]", re.IGNORECASE)
_STOP = re.compile(
    r"example|changeme|change[_-]me|your[_-]?|placeholder|redacted|dummy|xxxx|\*\*\*|\.\.\.|…|process\.env|os\.environ|getenv|"
    r"\[secret:|import\.meta|secrets\.|env\.|vars\.",
    re.IGNORECASE,
)
_STOP_BEGINNING = re.compile(r"https?:|[./~@]|data:|file:|s3:|arn:|urn:|op://|vault:", re.IGNORECASE)
# A name that goes on like this holds something about a secret, not the secret.
_ABOUT = re.compile(
    r"(?:^|[_-])(?:hash|sha\d*|md5|digest|checksum|counts?|types?|names?|ids?|ur[li]s?|paths?|files?|arn|len|length|"
    r"sizes?|limits?|ttl|expir\w*|at|version|policy|regex|pattern|field|label|prefix|budget|usage|in|out|per\w*|"
    r"total|max|min|ref|header|env|var|manager|store|provider|class|error|estimates?|est)(?:[_-]|$)|"
    r"(?<=[a-z])(?:Hash|Count|Type|Name|Id|Url|Path|File|Length|Size|Limit|Expir\w*|At|Version|Usage|Ref|Header)\b|iz\w*$"
)
_PLACEHOLDERS = frozenset(
    (
        "password",
        "passwd",
        "pass",
        "pwd",
        "secret",
        "token",
        "user",
        "username",
        "root",
        "admin",
        "postgres",
        "mysql",
        "test",
        "guest",
        "changeme",
        "example",
        "credentials",
        "pw",
        "key",
        "apikey",
        "none",
        "null",
        "true",
        "false",
        "undefined",
        "sha256",
        "sha512",
        "sha224",
        "pbkdf2",
        "base64",
        "base32",
        "argon2",
        "argon2id",
        "argon2i",
        "scrypt",
        "sm3",
        "int32",
        "int64",
        "uint64",
        "utf16",
        "string1",
    )
)
_PASSWORD = ("passw", "pwd", "passphrase")
_SIGNS = re.compile(r"[!#%^*+?~$@]")


def shannon_bits(text: str) -> float:
    """Shannon entropy per character, in bits."""
    n = len(text)
    return -sum(c / n * math.log2(c / n) for c in Counter(text).values())


def looks_random(value: str) -> bool:
    """Whether a value of at least 16 characters was drawn rather than thought of."""
    value = value[:_JUDGED_CHARS]
    if len(value) < _MIN_RANDOM_CHARS or is_stopped(value) or (_WORDLIKE.fullmatch(value) and not _is_mixed(value)):
        return False
    digits = sum(c.isdigit() for c in value)
    if _HEX.fullmatch(value):
        return 0 < digits < len(value) and shannon_bits(value) >= _MIN_HEX_BITS
    scattered = digits >= 2 or (value.isalnum() and bool(_DIGIT_INSIDE.search(value))) or _is_mixed(value)
    return digits < len(value) and shannon_bits(value) >= _MIN_BITS and scattered


def _is_mixed(value: str) -> bool:
    """Whether character classes change as often as chance would have it."""
    classes = [0 if c.islower() else 1 if c.isupper() else 2 if c.isdigit() else 3 for c in value[:_JUDGED_CHARS]]
    pairs = [(a, b) for a, b in itertools.pairwise(classes) if 3 not in (a, b)]
    return len(pairs) >= 10 and sum(a != b for a, b in pairs) >= _MIN_CLASS_CHANGES * len(pairs)


def is_stopped(value: str) -> bool:
    """Whether a value is a placeholder, a reference, an address, an identifier or a checksum."""
    if _STOP.search(value) or _UUID.fullmatch(value) or _CHECKSUM.match(value):
        return True
    if _STOP_BEGINNING.match(value) and not (len(value) >= 32 and _is_mixed(value)):
        return True
    return len(value) >= 8 and len(set(value)) <= 2


def is_secret_value(match: re.Match[str]) -> bool:
    """A value that looks random, or for passwords merely mixed: code and prose assign plenty to `token`."""
    quoted = match["quoted"] if "quoted" in match.re.groupindex else None
    return is_secret_under(match["name"], match["suffix"], quoted or match["value"], is_literal=quoted is not None)


def is_secret_under(name: str, suffix: str, value: str, *, is_literal: bool) -> bool:
    """Whether a value assigned to `name` + `suffix` (of a rule's names) is a secret; a literal is never a call."""
    if _ABOUT.search(suffix) or (_TEMPLATE.search(value) if is_literal else _CODE.match(value)):
        return False
    if name.lower().startswith(_PASSWORD):
        return _is_password(value)
    return looks_random(value if is_literal else value.rstrip(").]}"))


def _is_password(value: str) -> bool:
    """Letters with digits or signs among them; a word, a call, a reference and a type are none."""
    if is_stopped(value) or value.lower() in _PLACEHOLDERS or not any(map(str.isalpha, value)):
        return False
    if any(map(str.isdigit, value)):
        return value.isalnum() or not _WORDLIKE.fullmatch(value)
    return len(value) >= 8 and (bool(_SIGNS.search(value[1:-1])) or _is_mixed(value))


def is_bearer(match: re.Match[str]) -> bool:
    """Anything behind `Bearer` that prose would not put there."""
    value = match["value"]
    if is_stopped(value) or _CODE.match(value):
        return False
    return (any(c.isdigit() for c in value) and shannon_bits(value[:_JUDGED_CHARS]) >= 2.7) or _is_mixed(value)


def is_basic(match: re.Match[str]) -> bool:
    """Base64 of `user:password`, as the header has it."""
    value = match["value"]
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if set("-_") & set(value) else None)
        text = decoded.decode("ascii")
    except (binascii.Error, ValueError):
        return False
    return ":" in text and text.isprintable()


def is_url_password(match: re.Match[str]) -> bool:
    """Not a port, a placeholder, a reference, or the user's name again."""
    value, user = match["value"], match["user"]
    if value.startswith(("$", "{", "<", "%", "*", "[", "(")) or value.lower() in _PLACEHOLDERS or value == user:
        return False
    return len(value) >= 3 and not is_stopped(value) and ("@" not in value or not value.split("@")[0].isdigit())


def is_command_password(match: re.Match[str]) -> bool:
    """Not a reference, a number (a group id), or the user's name again."""
    value = match["value"]
    user = match["user"] if "user" in match.re.groupindex else ""
    if value.startswith(("$", "{", "<", "%", "*", "[", "/", ".")) or value.lower() in _PLACEHOLDERS or value == user:
        return False
    return not value.isdigit() and not is_stopped(value)


_SESSION_NAMES = re.compile(r"sess|auth|token|sid|jwt|csrf|xsrf|login|remember|identity|credential", re.IGNORECASE)


def is_cookie_value(name: str, value: str) -> bool:
    """A cookie that signs somebody in: by its name, or because its value was drawn at random."""
    if (is_stopped(value) and not _UUID.fullmatch(value)) or value.startswith(("$", "{", "<", "%", "[")):
        return False
    return (bool(_SESSION_NAMES.search(name)) and not value.isalpha()) or looks_random(value)
