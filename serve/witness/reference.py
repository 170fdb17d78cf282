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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from carve_kernels.exl3 import pack_format
from carve_kernels.exl3.linear import Linear, dequantise
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from safetensors import safe_open
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM

from runner.errors import InputError
from runner.files import write_whole

Arrays = dict[str, NDArray[Any]]


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


@dataclass(frozen=True)
class Pack:
    """A pack in memory: coded modules by name, and the tensors that are not coded."""

    config: Mapping[str, Any]
    coded: Mapping[str, Linear]
    plain: Mapping[str, NDArray[Any]]


def read_pack(folder: Path) -> Pack:
    """Read a pack without its draft layers. Raises InputError where a coded module is malformed."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors: Arrays = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(str(file), framework="numpy") as opened:
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                if _served(name, config["num_hidden_layers"]):
                    tensors[name] = opened.get_tensor(name)
    coded = {module: pack_format.from_tensors(module, tensors) for module in pack_format.modules(tensors)}
    parts = {part for name, linear in coded.items() for part in pack_format.tensor_names(name, linear.codebook)}
    return Pack(config, coded, {name: array for name, array in tensors.items() if name not in parts})


def _served(name: str, layers: int) -> bool:
    parts = name.split(".")
    return parts[:2] != ["model", "layers"] or int(parts[2]) < layers


def weights(pack: Pack, perturbation: Perturbation | None = None) -> dict[str, torch.Tensor]:
    """Every weight in float32 under its Hugging Face name, ``[out, in]``."""
    changed = perturbed_weight(pack, perturbation) if perturbation else {}
    state = {f"{name}.weight": dequantise(linear).T for name, linear in pack.coded.items()} | changed
    state |= {name: array.astype(np.float32) for name, array in pack.plain.items()}
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in state.items()}


def perturbed_weight(pack: Pack, change: Perturbation) -> Arrays:
    """The one weight ``[out, in]`` that differs. Raises InputError for a module or a rank that does not exist.

    Gate and up are split over ranks along their output, down along its input; the scales lie along the output.
    """
    name = f"{change.layer}.{change.expert}.{change.projection}_proj"
    if name not in pack.coded or change.rank >= change.ranks:
        raise InputError("nothing to perturb", where=name, expected="a coded expert and a rank below ranks")
    linear = pack.coded[name]
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


def model(pack: Pack, state: dict[str, torch.Tensor]) -> torch.nn.Module:
    """Hugging Face's model with these weights, float32. Raises InputError where names do not match exactly."""
    settings = {name: value for name, value in pack.config.items() if name != "quantization_config"}
    config = Glm4MoeConfig(**settings | {"dtype": "float32", "num_nextn_predict_layers": 0})
    built, report = Glm4MoeForCausalLM.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
    )
    faults = {kind: sorted(report[kind]) for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")}
    if any(faults.values()):
        raise InputError("the pack does not fit the reference model", expected="every weight once", found=str(faults))
    return built.eval()


def logprobs(built: torch.nn.Module, documents: Mapping[str, Sequence[int]]) -> dict[str, list[float]]:
    """Log-probability of every token after the first, in nats."""
    answer = {}
    with torch.inference_mode():
        for name, ids in documents.items():
            tokens = torch.tensor([list(ids)])
            scores = torch.log_softmax(built(tokens).logits[0, :-1].float(), dim=-1)
            answer[name] = scores.gather(1, tokens[0, 1:, None])[:, 0].tolist()
    return answer


def predict(request: Request) -> dict[str, Any]:
    """The answer to a request."""
    pack = read_pack(request.pack)
    base = logprobs(model(pack, weights(pack)), request.documents)
    perturbed = [logprobs(model(pack, weights(pack, change)), request.documents) for change in request.perturbations]
    return {"base": base, "perturbed": perturbed}


def main() -> None:
    """Read a request, write the answer whole."""
    parser = argparse.ArgumentParser(description="Predict logprobs with the reference model.")
    parser.add_argument("request", type=Path)
    parser.add_argument("answer", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    request = Request.model_validate_json(arguments.request.read_bytes())
    write_whole(arguments.answer, json.dumps(predict(request)).encode())


if __name__ == "__main__":
    main()
