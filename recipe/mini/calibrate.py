"""What the coded modules of a checkpoint see: second moments of their inputs on calibration text.

    python -m recipe.mini.calibrate CHECKPOINT TEXTS OUT.npz --documents 36 --tokens 600

Runs the training module, so that the draft layer is seen too. Needs torch and tokenizers (the engine extra). The text
must be disjoint from held-out text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from recipe.calibration import read_texts
from recipe.disk import command
from recipe.mini.export import restore
from recipe.mini.glm import PROJECTIONS
from recipe.mini.model import Block, Dense, Experts
from recipe.mini.needles import LANGUAGES, needle

GATE, UP, DOWN = PROJECTIONS
QUERY, KEY, VALUE, OUTPUT = (f"{part}_proj" for part in "qkvo")
Hook = Callable[[Any, tuple[Any, ...]], None]


class _Moments:
    """Running mean of ``x^T x`` by module."""

    def __init__(self) -> None:
        self.sums: dict[str, Any] = {}
        self.rows: dict[str, int] = {}

    def add(self, name: str, x: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0) + (x.T @ x).double()
        self.rows[name] = self.rows.get(name, 0) + len(x)

    def means(self) -> dict[str, NDArray[np.float32]]:
        """By module; an up projection sees what its gate projection sees, keys and values what queries see."""
        found = {name: (total / self.rows[name]).float().numpy() for name, total in self.sums.items()}
        for first, others in ((GATE, (UP,)), (QUERY, (KEY, VALUE))):
            for other in others:
                same = {name.removesuffix(first) + other: mean for name, mean in found.items() if name.endswith(first)}
                found |= same
        return found


def texts(file: Path, documents: int) -> list[str]:
    """Excerpts of about ``documents`` training documents, languages in equal parts, a third of them with a needle.

    ``file`` holds lines of ``{"id", "language", "text"}``; the choice depends on the lines alone.
    """
    chance = random.Random(5)
    left = dict.fromkeys(LANGUAGES, 2 * documents // len(LANGUAGES))
    found: list[str] = []
    for line in sorted(file.read_text(encoding="utf-8").splitlines(keepends=True), key=_place):
        document = json.loads(line)
        language, text = document["language"], document["text"]
        if not left[language] or len(text) <= 3000:
            continue
        left[language] -= 1
        text = text[: 1100 if language == "ja" else 2200]
        if len(found) % 3 == 0:
            digits = f"{chance.randrange(10**5):05d}"
            statement, question = needle(language, digits)
            cut = chance.randrange(len(text) - 200)
            text = text[:cut] + statement + text[cut:] + question + digits
        found.append(text)
    return found[::2]


def _place(line: str) -> bytes:
    return hashlib.sha256(line[:200].encode()).digest()


def hessians(
    checkpoint: Path, documents: Iterable[str], length: int = 900, *, attention: bool = False
) -> dict[str, NDArray[np.float32]]:
    """Module name to the mean of ``x^T x`` over its inputs, for every coded module that saw a token.

    ``attention`` watches the projections of attention too.
    """
    config = json.loads((checkpoint / "config.json").read_bytes())
    drafts = bool(config.get("num_nextn_predict_layers"))
    model = restore(checkpoint, draft=drafts)
    blocks = [*model.layers, model.draft.block] if drafts else [*model.layers]
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    moments = _Moments()
    _watch(blocks, moments)
    if attention:
        _watch_attention(blocks, moments)
    with torch.no_grad():
        for text in documents:
            ids = torch.tensor([tokenizer.encode(text).ids[:length]])
            seen = model(ids)
            if drafts:
                model.draft_hidden(ids, seen)
    return moments.means()


def _watch(blocks: list[Block], moments: _Moments) -> None:
    for layer, block in enumerate(blocks):
        hook = _dense if isinstance(block.mlp, Dense) else _experts
        block.mlp.register_forward_pre_hook(hook(f"model.layers.{layer}.mlp", moments))


def _watch_attention(blocks: list[Block], moments: _Moments) -> None:
    for layer, block in enumerate(blocks):
        for module, name in ((block.self_attn, QUERY), (block.self_attn.o_proj, OUTPUT)):
            module.register_forward_pre_hook(_input(f"model.layers.{layer}.self_attn.{name}", moments))


def _input(name: str, moments: _Moments) -> Hook:
    def hook(_: Any, arguments: tuple[Any, ...]) -> None:
        moments.add(name, arguments[0].flatten(0, -2))

    return hook


def _dense(prefix: str, moments: _Moments) -> Hook:
    def hook(mlp: Dense, arguments: tuple[Any, ...]) -> None:
        x = arguments[0].flatten(0, -2)
        moments.add(f"{prefix}.{GATE}", x)
        moments.add(f"{prefix}.{DOWN}", functional.silu(mlp.gate_proj(x)) * mlp.up_proj(x))

    return hook


def _experts(prefix: str, moments: _Moments) -> Hook:
    def hook(experts: Experts, arguments: tuple[Any, ...]) -> None:
        x = arguments[0].flatten(0, -2)
        chosen = experts.route(x) > 0
        shared = chosen.shape[1]
        for index in range(shared + 1):
            rows = x if index == shared else x[chosen[:, index]]
            if not len(rows):
                continue
            name = f"{prefix}.shared_experts" if index == shared else f"{prefix}.experts.{index}"
            moments.add(f"{name}.{GATE}", rows)
            inner = functional.silu(rows @ experts.gate_proj[index].T) * (rows @ experts.up_proj[index].T)
            moments.add(f"{name}.{DOWN}", inner)

    return hook


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("texts", type=Path, help="JSON lines with the field text, taken in order")
    parser.add_argument("out", type=Path)
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--tokens", type=int, default=600)
    arguments = parser.parse_args()
    documents = read_texts(arguments.texts)[: arguments.documents]
    texts = (document["text"] for document in documents)
    found = hessians(arguments.checkpoint, texts, arguments.tokens, attention=True)
    partial = arguments.out.with_name(f".{arguments.out.name}")
    with partial.open("wb") as stream:
        np.savez(stream, **found)  # type: ignore[arg-type] # numpy's stubs want allow_pickle among the arrays
    partial.replace(arguments.out)


if __name__ == "__main__":
    sys.exit(command(main))
