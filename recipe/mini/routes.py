"""Record which experts the small model chooses, token after token.

    python -m recipe.mini.routes PACK ROUTES.json

A kernel is timed with these as well as with uniform random routes: neighbouring tokens of a text share experts, random
rows do not. The file holds ``[text][token][MoE layer][top-k]`` expert numbers within a layer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.disk import command
from recipe.mini.dequantise import dequantise
from runner.files import write_whole

TOKENS = 128
_TEXTS = Path(__file__).with_name("text")
_PER_LANGUAGE = 2


def record(pack: Path) -> dict[str, Any]:
    """The choices for the first TOKENS tokens of a few texts in each language, by the pack's dequantised weights."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = dequantise(pack, Path(folder) / "checkpoint")
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(pack)
    chosen: list[torch.Tensor] = []
    for layer in model.model.layers:
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(lambda _module, _inputs, outputs: chosen.append(outputs[2]))
    texts = []
    for text in _texts():
        chosen.clear()
        ids = tokenizer(text, return_tensors="pt").input_ids[:, :TOKENS]
        with torch.inference_mode():
            model(ids)
        texts.append(torch.stack(chosen, dim=1).tolist())
    return {"experts": model.config.n_routed_experts, "texts": texts}


def _texts() -> list[str]:
    found = []
    for file in sorted(_TEXTS.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            found += [json.loads(line)["text"] for _, line in zip(range(_PER_LANGUAGE), lines, strict=False)]
    return found


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m recipe.mini.routes", description=__doc__)
    parser.add_argument("pack", type=Path)
    parser.add_argument("routes", type=Path)
    given = parser.parse_args()
    write_whole(given.routes, (json.dumps(record(given.pack), separators=(",", ":")) + "\n").encode())


if __name__ == "__main__":
    sys.exit(command(main))
