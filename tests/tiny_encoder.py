"""A sentence-transformers directory with random weights that loads in no time: BERT of 2 layers and 32 dimensions."""

from __future__ import annotations

from pathlib import Path

WORDS = [
    *("the", "cache", "retry", "file", "error", "fix", "un", "##able", "##ed", "##s", "app", "src", "naive"),
    *("数", "据", "и", "1", "2", ".", "/", ":", "_", "!", "?"),
]
LETTERS = [f"{prefix}{letter}" for prefix in ("", "##") for letter in "abcdefghijk"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MAX_TOKENS = 64


def build(directory: Path, seed: int = 0, *, bpe: bool = False, **pooling: object) -> Path:
    """Writes the model to `directory` and returns it; with `bpe` its tokenizer is one of bytes, not WordPiece."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    vocabulary = {t: i for i, t in enumerate([*SPECIAL, *WORDS, *LETTERS])}
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=512 if bpe else len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=MAX_TOKENS,
    )  # fmt: skip
    bare = directory.with_name(f"{directory.name}-bare")
    BertModel(config).save_pretrained(bare)
    if bpe:
        alphabet = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
        vocabulary = {t: i for i, t in enumerate(alphabet)}
        tokenizer = Tokenizer(models.BPE(vocabulary, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    else:
        tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_TOKENS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **dict(zip(names, SPECIAL, strict=True)),
    )
    fast.save_pretrained(bare)
    transformer = Transformer(str(bare), max_seq_length=MAX_TOKENS)
    modules = [transformer, Pooling(32, **(pooling or {"pooling_mode": "mean"})), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(directory))
    return directory
