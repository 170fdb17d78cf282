"""Compare golden vectors with the reference of this package: what must hold, bit by bit unless said otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carve_kernels.exl3 import codebook, golden, hadamard, linear, trellis
from carve_kernels.exl3.codebook import Codebook

Finding = tuple[str, bool, str]
"""Name of the comparison, whether it holds, what was seen."""

FORWARD_TOLERANCE = 2e-3
"""Root mean square of the difference over that of the output: the GPU rounds the rotated input to half."""


def compare(kept: dict[str, NDArray[Any]]) -> list[Finding]:
    """All comparisons; an array that is missing is a comparison that does not hold."""
    findings: list[Finding] = []
    for name, check in _checks():
        absent = [key for key in check.keys if key not in kept]
        if absent:
            findings.append((name, False, f"not in the file: {absent}"))
        else:
            findings.append((name, *check(*(kept[key] for key in check.keys))))
    return findings


class _Check:
    """A comparison of named arrays with an expectation."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def __call__(self, *found: NDArray[Any]) -> tuple[bool, str]:
        raise NotImplementedError


class _Same(_Check):
    def __init__(self, key: str, expected: NDArray[Any]) -> None:
        super().__init__(key)
        self.expected = expected

    def __call__(self, *found: NDArray[Any]) -> tuple[bool, str]:
        (array,) = found
        if array.shape != self.expected.shape or array.dtype != self.expected.dtype:
            return False, f"{array.dtype} {array.shape}, expected {self.expected.dtype} {self.expected.shape}"
        different = np.argwhere(array != self.expected)
        if not len(different):
            return True, f"{array.size} values identical"
        first = tuple(int(i) for i in different[0])
        return False, f"{len(different)} of {array.size} differ, first at {first}: {array[first]:#x}, " + (
            f"expected {self.expected[first]:#x}"
        )


class _Near(_Check):
    def __init__(self, key: str, expected: NDArray[np.floating], tolerance: float) -> None:
        super().__init__(key)
        self.expected, self.tolerance = expected, tolerance

    def __call__(self, *found: NDArray[Any]) -> tuple[bool, str]:
        (array,) = found
        if array.shape != self.expected.shape:
            return False, f"shape {array.shape}, expected {self.expected.shape}"
        difference = np.sqrt(((array - self.expected).astype(np.float64) ** 2).mean())
        relative = float(difference / np.sqrt((self.expected.astype(np.float64) ** 2).mean()))
        return relative < self.tolerance, f"relative difference {relative:.2e}, allowed {self.tolerance:.0e}"


class _QuantisedError(_Check):
    """The states that exllamav3 chose decode to weights with the error it reports."""

    def __init__(self, bits: int, book: Codebook) -> None:
        super().__init__(f"quantised/{bits}/{book.value}", f"quantised-error/{bits}/{book.value}")
        self.book = book

    def __call__(self, *found: NDArray[Any]) -> tuple[bool, str]:
        packed, error = found
        weights = codebook.table(self.book)[trellis.windows(packed)].astype(np.float64)
        own = ((weights - golden.quantise_case(self.book)) ** 2).mean(axis=1)
        return bool(
            np.allclose(own, error, rtol=1e-9)
        ), f"mean squared error {own.mean():.5f}, reported {error.mean():.5f}"


def _checks() -> Iterator[tuple[str, _Check]]:
    for book in Codebook:
        values = codebook.table(book).view(np.uint16)
        yield f"table {book.value}", _Same(f"table/{book.value}", values[:: golden.TABLE_STRIDE])
        yield f"whole table {book.value}", _Same(f"table-digest/{book.value}", golden.digest(values))
    signs = np.packbits(hadamard.matrix() > 0)
    yield "signs of the Hadamard matrix", _Same("hadamard-signs", signs)
    yield "value of the Hadamard matrix", _Near("hadamard-value", np.abs(hadamard.matrix())[:1, :4], 1e-6)
    for bits in trellis.BITS:
        yield f"states K={bits}", _Same(f"states/{bits}", trellis.windows(golden.patterns(bits)))
    for bits, book in golden.cases():
        name, case = f"{bits}/{book.value}", f"K={bits} {book.value}"
        for kind, tiles in (("walking-bit", golden.walking_bit(bits)), ("random", golden.random_tiles(bits))):
            weights = linear.reconstruct(tiles, book).view(np.uint16)
            yield f"every {kind} tile {case}", _Same(f"{kind}-digest/{name}", golden.digest(weights))
        weights = linear.reconstruct(golden.patterns(bits), book).view(np.uint16)
        yield f"patterns {case}", _Same(f"patterns/{name}", weights)
        x, layer = golden.linear_case(bits, book)
        expected = linear.forward(x, layer)
        yield f"forward {case}", _Near(f"forward/{name}", expected, FORWARD_TOLERANCE)
        yield f"forward of one row {case}", _Near(f"forward-row/{name}", expected[:1, ::4], FORWARD_TOLERANCE)
        yield f"quantised {case}", _QuantisedError(bits, book)
