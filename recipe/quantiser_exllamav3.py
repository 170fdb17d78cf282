"""exllamav3's own quantiser behind the interface of ours. It needs a GPU and that library (1.4.5 or 1.6.5).

Only a GPU host runs this module; nothing here is tested on a machine without one but the choice of arguments.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from carve_kernels.exl3 import linear, pack_format
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.quantise import Quantised
from numpy.typing import NDArray

from runner.errors import InputError, StateError

_DAMPING = 0.025
_MODULE = "m"


def quantise_linear(
    weight: NDArray[np.floating], bits: int, book: Codebook, seed: int, hessian: NDArray[np.floating] | None = None
) -> Quantised:
    """Code ``weight [in, out]``; ``hessian [in, in]`` is the mean of ``x^T x``. Its proxy error is ``output_error``.

    Raises StateError without a GPU or exllamav3, InputError for the default codebook, which 1.4.5 no longer writes.
    """
    torch, quantizer = _libraries()
    device = torch.device("cuda:0")
    arguments = arguments_of(bits, book, seed, device)
    inputs = weight.shape[0]
    moments = torch.zeros(inputs, inputs) if hessian is None else torch.from_numpy(hessian.astype(np.float32))
    captured = {
        "H": moments.to(device),
        "first_key": _MODULE,
        # The library divides the sum over samples by their number; ours is the mean already.
        "count": 0 if hessian is None else 1,
        "num_total": 0,
        "finalized": False,
        "inf_nan": torch.zeros(2, dtype=torch.long, device=device),
        "device": device,
    }
    plain = torch.from_numpy(np.ascontiguousarray(weight, dtype=np.float32)).to(device)
    _, proxy, tensors = quantizer.quantize_exl3(plain, captured, arguments, return_weight_q=False)
    coded = pack_format.from_tensors(_MODULE, {f"{_MODULE}.{part}": t.cpu().numpy() for part, t in tensors.items()})
    error = linear.dequantise(coded).astype(np.float64) - weight
    relative = float((error**2).sum() / (weight.astype(np.float64) ** 2).sum())
    return Quantised(coded, relative, None if hessian is None else float(proxy))


def arguments_of(bits: int, book: Codebook, seed: int, device: Any) -> dict[str, Any]:
    """The library's quantisation arguments."""
    if book is Codebook.DEFAULT:
        raise InputError("exllamav3 codes with a marked codebook", expected="mcg or mul1", found=book.value)
    return {
        "K": bits,
        "seed": seed % (1 << 31),
        "devices": [device],
        "device_ratios": None,
        "apply_out_scales": None,
        "sigma_reg": _DAMPING,
        book.value: True,
    }


def _libraries() -> tuple[Any, Any]:
    try:
        torch = importlib.import_module("torch")
        if not torch.cuda.is_available():
            raise StateError("exllamav3's quantiser needs a GPU", expected="a CUDA device", found="none")
        return torch, importlib.import_module("exllamav3.modules.quant.exl3_lib.quantize")
    except ImportError as error:
        raise StateError(
            "exllamav3's quantiser is not installed",
            expected="torch and exllamav3 1.4.5 or 1.6.5",
            found=str(error),
            next_step="use `quantiser: native`, or run on a GPU host with that library",
        ) from error
