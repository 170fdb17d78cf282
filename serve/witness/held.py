"""Bytes that one rank holds once its model is loaded; what :mod:`serve.prediction` says before."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from serve.witness.witness import Witness


def weights_bytes(witness: Witness, parameters: Mapping[str, torch.Tensor]) -> int:
    """Everything noted while it loaded (the engine may have repacked it since), and every other parameter."""
    noted = witness.noted_bytes
    rest = {name: tensor for name, tensor in parameters.items() if name not in noted}
    rest = {name: tensor for name, tensor in rest.items() if name.rpartition(".")[0] not in noted}
    return sum(noted.values()) + sum(int(tensor.nbytes) for tensor in rest.values())


__all__ = ["weights_bytes"]
