"""What the coded modules of a checkpoint see: second moments of their inputs on calibration text.

Needs torch and transformers (the engine extra). The draft layer, which transformers does not run, gets none and is
coded without. The text must be disjoint from held-out text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.mini.glm import PROJECTIONS

GATE, UP, DOWN = PROJECTIONS


class _Moments:
    """Running mean of ``x^T x`` by module."""

    def __init__(self) -> None:
        self.sums: dict[str, Any] = {}
        self.rows: dict[str, int] = {}

    def add(self, name: str, x: Any) -> None:
        rows = x.reshape(-1, x.shape[-1]).float()
        self.sums[name] = self.sums.get(name, 0) + (rows.T @ rows).double()
        self.rows[name] = self.rows.get(name, 0) + len(rows)

    def means(self) -> dict[str, NDArray[np.float32]]:
        """By module; an up projection sees what its gate projection sees."""
        found = {name: (total / self.rows[name]).float().numpy() for name, total in self.sums.items()}
        gates = {name.removesuffix(GATE) + UP: mean for name, mean in found.items() if name.endswith(GATE)}
        return found | gates


def texts(file: Path, documents: int) -> list[str]:
    """Every n-th text of a JSON lines file, so that about ``documents`` come from all over it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines[:: max(1, len(lines) // documents)][:documents]]


def hessians(checkpoint: Path, documents: Iterable[str], length: int = 1024) -> dict[str, NDArray[np.float32]]:
    """Module name to the mean of ``x^T x`` over its inputs, for each module that the main layers run.

    Of each document the first ``length`` tokens are read.
    """
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    moments = _Moments()
    for name, module in model.named_modules():
        if name.endswith(".mlp.experts"):
            module.register_forward_pre_hook(_routed(name, moments))
        elif ".mlp." in name and name.endswith((GATE, DOWN)):
            module.register_forward_pre_hook(_linear(name, moments))
    with torch.inference_mode():
        for text in documents:
            ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
            model(torch.tensor([ids]), use_cache=False)
    return moments.means()


def _linear(name: str, moments: _Moments) -> Any:
    def hook(_module: Any, arguments: tuple[Any, ...]) -> None:
        moments.add(name, arguments[0])

    return hook


def _routed(name: str, moments: _Moments) -> Any:
    def hook(experts: Any, arguments: tuple[Any, ...]) -> None:
        x, chosen = arguments[:2]
        for expert in range(len(experts.down_proj)):
            rows = x[(chosen == expert).any(dim=-1)]
            if not len(rows):
                continue
            gate, up = torch.nn.functional.linear(rows, experts.gate_up_proj[expert]).chunk(2, dim=-1)
            moments.add(f"{name}.{expert}.{GATE}", rows)
            moments.add(f"{name}.{expert}.{DOWN}", experts.act_fn(gate) * up)

    return hook
