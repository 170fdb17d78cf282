"""Corpus and tokenizer to the files training reads: ``python -m recipe.mini.encode CORPUS TOKENIZER FOLDER``.

``FOLDER/{en,ja,code}.u16.xz`` are token streams (little-endian uint16, documents separated by id 0);
``FOLDER/held_out/*.jsonl`` is copied unchanged.
"""

import argparse
import json
import lzma
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from recipe.disk import command
from recipe.mini.batches import NeedleForm, Tokens
from recipe.mini.needles import LANGUAGES, needle


def encode(tokenizer: Tokenizer, texts: Iterable[str], *, at_once: int = 512) -> Tokens:
    """One stream of all texts, each followed by the separator (id 0)."""
    parts: list[Tokens] = []
    waiting: list[str] = []

    def flush() -> None:
        encoded = tokenizer.encode_batch_fast(waiting, add_special_tokens=False)
        parts.extend(np.array([*one.ids, 0], "<u2") for one in encoded)
        waiting.clear()

    for text in texts:
        waiting.append(text)
        if len(waiting) == at_once:
            flush()
    flush()
    return np.concatenate(parts)


def read_texts(path: Path, language: str | None = None) -> list[str]:
    """The texts of a ``{"id", "language", "text"}`` file, of one language or all."""
    with path.open(encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    return [document["text"] for document in documents if language in {None, document["language"]}]


def held_out_tokens(tokenizer: Tokenizer, folder: Path) -> dict[str, list[Tokens]]:
    """The documents of ``folder/{en,ja,code}.jsonl`` in tokens."""
    return {
        language: [encode(tokenizer, [text])[:-1] for text in read_texts(folder / f"{language}.jsonl")]
        for language in LANGUAGES
    }


def needle_forms(tokenizer: Tokenizer) -> tuple[dict[str, NeedleForm], Tokens]:
    """Every needle form in tokens and the ids of the ten digits; fails unless a digit is always one token."""
    digit = np.array([tokenizer.token_to_id(str(value)) for value in range(10)], np.uint16)
    forms = {}
    for language in LANGUAGES:
        statement, question = needle(language, "31415")
        before, after = (np.array(tokenizer.encode(part).ids, np.uint16) for part in statement.split("31415"))
        asked = np.array(tokenizer.encode(question).ids, np.uint16)
        answer = digit[[3, 1, 4, 1, 5]]
        stated = tokenizer.encode(statement).ids == np.concatenate((before, answer, after)).tolist()
        if not stated or tokenizer.encode(question + "31415").ids != np.concatenate((asked, answer)).tolist():
            raise ValueError(f"the {language} needle does not fall into tokens at its digits")
        forms[language] = NeedleForm(before, after, asked)
    return forms, digit


def write(corpus: Path, tokenizer_folder: Path, folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    folder.mkdir(parents=True, exist_ok=True)
    for language in LANGUAGES:
        stream = encode(tokenizer, read_texts(corpus / "train.jsonl", language))
        (folder / f"{language}.u16.xz").write_bytes(lzma.compress(stream.tobytes(), preset=4))
        print(language, len(stream), "tokens", flush=True)
    shutil.copytree(corpus / "held_out", folder / "held_out", dirs_exist_ok=True)
    shutil.copytree(tokenizer_folder, folder / "tokenizer", dirs_exist_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("corpus", "tokenizer", "folder"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    write(arguments.corpus, arguments.tokenizer, arguments.folder)


if __name__ == "__main__":
    sys.exit(command(main))
