"""Measure a checkpoint (or a dequantised pack) on the held-out text: ``python -m recipe.mini.measure CHECKPOINT``.

Float32 on the CPU. Prints JSON: perplexity a language, needles found at evenly spaced depths a language and length, and
how often the draft layer agrees with the model.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from recipe.disk import command
from recipe.mini.encode import held_out_tokens, needle_forms
from recipe.mini.evaluate import draft_agreement, needle_rows, needles_found, perplexity
from recipe.mini.export import restore
from recipe.mini.needles import LANGUAGES

TEXT = Path(__file__).parent / "text"


def measure(
    checkpoint: Path, *, lengths: Sequence[int], depths: int, seed: int = 3, text: Path = TEXT
) -> dict[str, Any]:
    """Everything a pack is chosen by; ``lengths`` are whole prompts in tokens, question and answer included."""
    model = restore(checkpoint)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    held_out = held_out_tokens(tokenizer, text)
    forms, digit = needle_forms(tokenizer)
    haystacks = {language: np.concatenate(found) for language, found in held_out.items()}
    needles: dict[str, dict[str, float]] = {}
    for length in lengths:
        rows = needle_rows(haystacks, forms, digit, length=length, depths=depths, seed=seed)
        found = [needles_found(model, part, at_once=4) for part in rows.split(depths)]
        needles[str(length)] = dict(zip(LANGUAGES, found, strict=True))
    return {
        "perplexity": {language: perplexity(model, found, at_once=4) for language, found in held_out.items()},
        "needles": needles,
        "draft_agreement": {language: draft_agreement(model, found[:12]) for language, found in held_out.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--depths", type=int, default=16)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.checkpoint, lengths=arguments.lengths, depths=arguments.depths), indent=1))


if __name__ == "__main__":
    sys.exit(command(main))
