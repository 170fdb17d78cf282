"""What a correct engine would say: Hugging Face's Glm4Moe in float32 on the dequantised pack, on this machine.

The perturbation gate compares the engine's change of logprobs with the change predicted here, so nothing of the engine,
the plugin or the kernels takes part: the weights come from the numpy reference of EXL3, the model from transformers.

Run in a process of its own (it needs torch and a gigabyte)::

    python -P -m serve.witness.reference REQUEST.json ANSWER.json

Request: ``{"pack": folder, "documents": {id: [token ids]}, "perturbations": [{"rank", "ranks", "layer", "expert",
"projection", "factor"}]}``. Answer: ``{"base": {id: [logprob of ids[1:]]}, "perturbed": [{id: [...]}, ...]}``, one for
each perturbation, in nats, float32 arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from carve_kernels.exl3.linear import Linear, dequantise
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

from recipe.mini.dequantise import coded, weights
from recipe.pack import Pack, read_pack
from runner.errors import InputError
from runner.files import write_whole

Arrays = dict[str, NDArray[Any]]
Asked = TypeVar("Asked", bound=BaseModel)


class Perturbation(BaseModel):
    """One expert's projection on one rank, its output scales times ``factor`` (rounded to float16, as served)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rank: int = Field(ge=0)
    ranks: int = Field(ge=1)
    layer: str
    """Module prefix of the routed experts, for example ``model.layers.1.mlp.experts``."""
    expert: int = Field(ge=0)
    projection: Literal["gate", "up", "down"]
    factor: float


class Request(BaseModel):
    """What to predict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pack: Path
    documents: dict[str, list[int]]
    perturbations: list[Perturbation] = []


def perturbed_weight(pack: Pack, change: Perturbation) -> Arrays:
    """The one weight ``[out, in]`` that differs. Raises InputError for a module or a rank that does not exist.

    Gate and up are split over ranks along their output, down along its input; the scales lie along the output.
    """
    name = f"{change.layer}.{change.expert}.{change.projection}_proj"
    if name not in pack.modules or change.rank >= change.ranks:
        raise InputError("nothing to perturb", where=name, expected="a coded expert and a rank below ranks")
    linear = coded(pack, name)
    scaled = (linear.svh.astype(np.float32) * np.float32(change.factor)).astype(np.float16)
    plain = dequantise(linear).T.copy()
    turned = dequantise(Linear(linear.trellis, linear.suh, scaled, linear.codebook)).T
    width = (linear.in_features if change.projection == "down" else linear.out_features) // change.ranks
    share = slice(change.rank * width, (change.rank + 1) * width)
    if change.projection == "down":
        plain[:, share] = turned[:, share]
    else:
        plain[share] = turned[share]
    return {f"{name}.weight": plain}


def model(folder: Path, plain: Arrays) -> torch.nn.Module:
    """Hugging Face's model with these weights, float32 and without draft layers.

    Raises InputError where names do not match exactly.
    """
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings.pop("quantization_config", None)
    config = Glm4MoeConfig(**settings | {"dtype": "float32", "num_nextn_predict_layers": 0})
    drafts = tuple(
        f"model.layers.{config.num_hidden_layers + n}." for n in range(settings.get("num_nextn_predict_layers", 0))
    )
    state = {
        name: torch.from_numpy(np.ascontiguousarray(array))
        for name, array in plain.items()
        if not name.startswith(drafts)
    }
    built, report = Glm4MoeForCausalLM.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
    )
    faults = {kind: sorted(report[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if any(faults.values()):
        raise InputError("the pack does not fit the reference model", expected="every weight once", found=str(faults))
    return built.eval()


def scores(built: torch.nn.Module, documents: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
    """Log-probabilities ``[tokens - 1, vocabulary]`` of each document, in nats."""
    with torch.inference_mode():
        return {
            name: torch.log_softmax(built(torch.tensor([list(ids)])).logits[0, :-1].float(), dim=-1)
            for name, ids in documents.items()
        }


def of_tokens(score: torch.Tensor, ids: Sequence[int]) -> torch.Tensor:
    """Log-probability of every token of a document after the first, from its scores."""
    return score.gather(1, torch.tensor(list(ids))[1:, None])[:, 0]


def logprobs(built: torch.nn.Module, documents: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
    """Log-probability of every token after the first, in nats."""
    return {name: of_tokens(score, documents[name]).tolist() for name, score in scores(built, documents).items()}


def predict(request: Request) -> dict[str, Any]:
    """The answer to a request."""
    pack = read_pack(request.pack)
    plain = weights(pack)
    variations = [plain, *(plain | perturbed_weight(pack, change) for change in request.perturbations)]
    base, *perturbed = (logprobs(model(request.pack, varied), request.documents) for varied in variations)
    return {"base": base, "perturbed": perturbed}


def answer_one(description: str, kind: type[Asked], answer: Callable[[Asked], dict[str, Any]]) -> None:
    """A job of the reference: read the request that the command line names, write its answer whole."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("request", type=Path)
    parser.add_argument("answer", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    request = kind.model_validate_json(arguments.request.read_bytes())
    write_whole(arguments.answer, json.dumps(answer(request)).encode())


if __name__ == "__main__":
    answer_one("Predict logprobs with the reference model.", Request, predict)
