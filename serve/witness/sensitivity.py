"""What each changed layer of a product costs: the reference forward with one layer at a time taken from the product.

Hugging Face's Glm4Moe in float32 on dequantised weights, as :mod:`serve.witness.reference`; nothing of the engine takes
part. Run in a process of its own::

    python -P -m serve.witness.sensitivity REQUEST.json ANSWER.json

Request: ``{"standing": folder, "product": folder, "documents": {id: [token ids]}}``. Answer: ``{"loss": {id: nats},
"layers": {name: {"loss": {id: nats}, "kl": {id: nats}}}}``; losses are means over the tokens after the first, KL is
KL(standing ‖ changed) over the whole vocabulary. The name ``together`` stands for all layers at once. A draft layer,
which this forward does not run, costs nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from recipe.census import layer_of
from recipe.mini.dequantise import weights
from recipe.pack import read_pack
from runner.errors import InputError
from serve.witness.reference import Arrays, answer_one, model, of_tokens, scores

TOGETHER = "together"


class Request(BaseModel):
    """What to compare on what."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    standing: Path
    product: Path
    documents: dict[str, list[int]]


def changed_layers(standing: Arrays, product: Arrays) -> dict[str, Arrays]:
    """By layer, in order, the weights of ``product`` that differ. InputError where the two hold other weights."""
    if standing.keys() != product.keys():
        apart = sorted(standing.keys() ^ product.keys())[:3]
        raise InputError("the product holds other weights than the standing pack", found=", ".join(apart))
    found: dict[str, Arrays] = {}
    for name, array in product.items():
        if not np.array_equal(array, standing[name]):
            found.setdefault(layer_of(name), {})[name] = array
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts layer 3 before layer 21."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in name.split(".")]


def answer(request: Request) -> dict[str, Any]:
    """Loss and divergence of every changed layer alone and of all together."""
    plain = weights(read_pack(request.standing))
    layers = changed_layers(plain, weights(read_pack(request.product)))
    together = {name: array for changed in layers.values() for name, array in changed.items()}
    standing = scores(model(request.standing, plain), request.documents)
    found = {}
    for name, changed in (*layers.items(), (TOGETHER, together)):
        now = scores(model(request.standing, plain | changed), request.documents)
        found[name] = {
            "loss": _losses(now, request.documents),
            "kl": {
                document: float((theirs.exp() * (theirs - now[document])).sum(-1).mean())
                for document, theirs in standing.items()
            },
        }
    return {"loss": _losses(standing, request.documents), "layers": found}


def _losses(found: Mapping[str, torch.Tensor], documents: Mapping[str, Sequence[int]]) -> dict[str, float]:
    return {name: -float(of_tokens(score, documents[name]).mean()) for name, score in found.items()}


if __name__ == "__main__":
    answer_one("Measure what each changed layer costs.", Request, answer)
