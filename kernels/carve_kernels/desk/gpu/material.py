"""Made-up linears, layers and inputs on the device, from a seed that nobody knew before the run."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from carve_kernels.cuda.dense import Part
from carve_kernels.desk.gpu import reference
from carve_kernels.exl3.codebook import Codebook

INPUTS = ("gaussian", "zero", "large", "cancelling")


def generator(seed: int, device: torch.device) -> torch.Generator:
    """The source of everything random of a job."""
    return torch.Generator(device=device).manual_seed(seed)


def part(source: torch.Generator, in_features: int, out_features: int, bits: int, *, scale: float = 1.0) -> Part:
    """A linear of random bits, signs and scales: unit-variance inputs give outputs of about ``scale``."""
    device = source.device
    shape = (in_features // 16, out_features // 16, 16 * bits)
    trellis = torch.randint(-32768, 32768, shape, generator=source, device=device, dtype=torch.int32).to(torch.int16)
    level = scale / (1.24 * in_features**0.5)
    return Part(trellis, signs(source, in_features), (signs(source, out_features).double() * level).half())


def signs(source: torch.Generator, count: int) -> torch.Tensor:
    """Halves of either sign between 0.5 and 1.5."""
    size = 0.5 + torch.rand(count, generator=source, device=source.device)
    sign = 1.0 - 2.0 * torch.randint(0, 2, (count,), generator=source, device=source.device)
    return (size * sign).half()


def inputs(source: torch.Generator, kind: str, rows: int, features: int) -> torch.Tensor:
    """Activations ``[rows, features]``, half: zeros, unit variance, eight times that, or pairs that almost cancel."""
    x = torch.randn(rows, features, generator=source, device=source.device)
    if kind == "zero":
        x = torch.zeros_like(x)
    elif kind == "large":
        x = 8.0 * x
    elif kind == "cancelling":
        x = x + x.roll(1, dims=1).neg() + 1e-2 * torch.randn(x.shape, generator=source, device=source.device)
    return x.half()


@dataclass(frozen=True)
class Fan:
    """Linears that share an input, as one layer of the served model has them."""

    parts: tuple[Part, ...]
    book: Codebook

    @property
    def in_features(self) -> int:
        return self.parts[0].in_features

    @property
    def weights(self) -> int:
        """Weights that one call has to decode."""
        return sum(part.trellis.numel() * 16 // part.bits for part in self.parts)

    @property
    def bytes(self) -> int:
        """Trellis bytes that one call has to read."""
        return sum(part.trellis.numel() * 2 for part in self.parts)

    def outputs(self, rows: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        """Outputs full of NaN, so that an element nobody wrote is seen."""
        device = self.parts[0].suh.device
        sizes = [(rows, part.out_features) for part in self.parts]
        return [torch.full(size, torch.nan, dtype=dtype, device=device) for size in sizes]

    def reference(self, x: torch.Tensor, *, of_pairs: bool = False) -> list[torch.Tensor]:
        """Each part's output in double precision."""
        entry = reference.at_entry(x)
        return [
            reference.linear(entry, part.trellis, part.suh, part.svh, self.book, of_pairs=of_pairs)
            for part in self.parts
        ]


def fan(source: torch.Generator, in_features: int, widths: tuple[int, ...], bits: int, book: Codebook) -> Fan:
    """One fan of the given widths."""
    return Fan(tuple(part(source, in_features, width, bits) for width in widths), book)
