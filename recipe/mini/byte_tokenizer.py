"""A byte-level BPE tokenizer without training: single bytes, then pairs and triples of small letters.

For packs whose text does not matter. Written as Hugging Face's ``tokenizer.json``, so that every engine reads it.
"""

from __future__ import annotations

import string
from itertools import product
from pathlib import Path

from recipe import pack_write
from recipe.mini.tokenizer_config import END, write_config
from runner.errors import InputError

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]


def byte_letters() -> list[str]:
    """The letter that stands for each byte in byte-level BPE: itself if printable, else one from U+0100 on."""
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in _PRINTABLE else next(others)) for byte in range(256)]


def write(folder: Path, vocabulary: int, context: int) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json``; id 0 ends a text. InputError below 257 tokens."""
    letters = byte_letters()
    if vocabulary < len(letters) + 1:
        raise InputError("vocabulary too small", expected="at least 257", found=str(vocabulary))
    space, small = letters[0x20], string.ascii_lowercase
    merges = [(first, second) for first, second in product(small, small)]
    merges += [(space, first + second) for first, second in merges]
    merges += [(first + second, third) for (first, second), third in product(merges[:26], small)]
    merges = merges[: vocabulary - len(letters) - 1]
    tokens = [END, *letters, *(first + second for first, second in merges)]
    if len(tokens) != vocabulary:
        raise InputError("vocabulary too large", expected=f"at most {len(tokens)}", found=str(vocabulary))
    pack_write.write_json(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": 0,
                    "content": END,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {token: number for number, token in enumerate(tokens)},
                "merges": [list(pair) for pair in merges],
            },
        },
    )
    write_config(folder, context)
