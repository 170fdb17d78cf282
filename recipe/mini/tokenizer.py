"""Byte-level BPE for the small model: ``python -m recipe.mini.tokenizer TRAIN_JSONL FOLDER``.

Every digit is a token of its own; id 0 is the document separator and end of text. Deterministic: the same lines in the
same order give the same file.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from recipe.disk import command
from recipe.mini.needles import LANGUAGES, needle
from recipe.mini.tokenizer_config import END, write_config

VOCABULARY = 1536
_SAMPLE_BYTES = {"en": 5_000_000, "ja": 7_000_000, "code": 4_000_000}


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """A byte-level BPE of exactly ``vocabulary`` tokens (fewer only when the texts are too short)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def sample(lines: Iterable[str]) -> Iterator[str]:
    """Texts of every fourth line, until each language has its share of bytes; then the needle forms."""
    left = dict(_SAMPLE_BYTES)
    for line in list(lines)[::4]:
        document = json.loads(line)
        language, text = document["language"], document["text"]
        if left[language] > 0:
            left[language] -= len(text.encode())
            yield text
    for language in LANGUAGES:
        yield "".join(needle(language, "12345")) * 200


def save(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` as transformers and vLLM read them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_config(folder, context)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    with arguments.train.open(encoding="utf-8") as lines:
        tokenizer = train_tokenizer(sample(lines))
    save(tokenizer, arguments.folder, 4096)


if __name__ == "__main__":
    sys.exit(command(main))
