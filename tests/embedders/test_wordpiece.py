"""Our WordPiece against Hugging Face's fast tokenizer, on strings that people and attackers write."""

from __future__ import annotations

import random
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill.embedders.wordpiece import WordPieceTokenizer

tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(f"{prefix}{c}" for prefix in ("", "##") for c in "abcdefghijklmnopqrstuvwxyz0123456789éßσиأक数ㅎᄒ"),
    *("re", "##try", "retry", "##ing", "cache", "un", "##able", "!", "-", "—", "。", "/", "'", "_", "∑"),
]
VOCABULARY = {token: number for number, token in enumerate(dict.fromkeys(PIECES))}
# Characters that the reference's tables (Unicode 8) know; later ones are the documented difference.
KNOWN = st.characters(max_codepoint=0x2E42, exclude_categories=["Cs", "Cn"]).filter(
    lambda c: unicodedata.category(c) not in ("Mn", "Po", "Cf") or ord(c) < 0x600
)
TEXTS = st.lists(
    st.one_of(
        st.text(KNOWN, max_size=12),
        st.sampled_from(
            ["[SEP]", "[MASK]", "[sep]", "retrying", "Uncacheable", "İ", "ΑΣ", "한국", "数据", "豈", "a" * 101]
        ),
        st.sampled_from(
            [" ", "\t", "\u2028", "\u00a0", "\x85", "\x1c", "\0", "\ufffd", "\u200b", "\u0301", "\U0001f600"]
        ),
    ),
    max_size=12,
).map("".join)


def reference(lowercase: bool) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(VOCABULARY, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(PIECES[:5])
    return tokenizer


REFERENCE = {lowercase: reference(lowercase) for lowercase in (True, False)}
OURS = {lowercase: WordPieceTokenizer(VOCABULARY, lowercase=lowercase) for lowercase in (True, False)}


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, lowercase=st.booleans())
def test_ids_are_those_of_the_fast_tokenizer(text: str, lowercase: bool) -> None:
    assert OURS[lowercase].encode(text, 10_000)[0] == REFERENCE[lowercase].encode(text).ids


def test_characters_read_the_same_but_for_later_unicode() -> None:
    characters = [*map(chr, [*range(0x3100), *range(0xF900, 0x10000), *range(0x1F300, 0x1F700)])]
    texts = [f"a{c}b" for c in characters]
    expected = REFERENCE[True].encode_batch(texts)
    found = [OURS[True].encode(text, 99)[0] for text in texts]
    different = [c for c, one, two in zip(characters, found, expected, strict=True) if one != two.ids]
    assert len(different) < 200
    assert min(map(ord, different)) > 0x600
    assert {unicodedata.category(c) for c in different} <= {"Mn", "Mc", "Po", "Ps", "Pe", "Pd", "So", "Cf"}


def test_truncation_keeps_the_last_separator_and_says_so() -> None:
    text = " ".join(["retry"] * 10)
    fast = reference(True)
    for limit in (3, 11, 12, 13):
        fast.enable_truncation(limit)
        ids, cut = OURS[True].encode(text, limit)
        assert ids == fast.encode(text).ids
        assert cut is (limit < 12)


def test_code_and_prose_read_the_same() -> None:
    rng = random.Random(0)
    alphabet = "retry caching Un-able()[]{}<>.,;:!?'\"\\/|_=+*&^%$#@~`\n\t0123 éÉßΣИ数。—"
    for _ in range(2000):
        text = "".join(rng.choices(alphabet, k=rng.randrange(40)))
        assert OURS[True].encode(text, 10_000)[0] == REFERENCE[True].encode(text).ids


def test_a_vocabulary_without_special_tokens_is_refused() -> None:
    with pytest.raises(KeyError):
        WordPieceTokenizer({"a": 0})
