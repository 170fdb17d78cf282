"""Compares a variant library with the reference: ``python -m carve_kernels.desk.parity --variant lna2``.

Every row count of decode and some of prefill; K2 and K3 with the mcg codebook in full, other formats in brief; every
kind of route with every kind of input; outputs poisoned with NaN before each call; each call made twice, by one thread
and by all, and compared bit by bit. The result is a list of facts, one a row count and format, that the ``parity``
instrument reads as ``ParityCase``. Run it in a process of its own: the library under test is native code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from carve_kernels import parallel
from carve_kernels.build import build
from carve_kernels.desk import layers
from carve_kernels.desk.layers import INPUTS, ROUTES, Expert, Inputs, Route, Shape
from carve_kernels.desk.reference import Reference
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import Library, Table

SHAPE = Shape(hidden=256, intermediate=512, experts=6, topk=3)
"""As one rank serves a layer of the small pack: no library can tell the desk from the seat by its shape."""
DECODE_ROWS = tuple(range(1, 33))
PREFILL_ROWS = (33, 64, 65, 200)
LIMIT = 10.0
SMALL_ROW = 1e-3
"""A reference row of at most this norm has no meaningful relative error (campaign gate B4) ..."""
SMALL_SCALE = 0.05
"""... its absolute error is divided by this instead, so that 1e-4 absolute meets a limit of 2e-3."""

Fact = dict[str, str | int | bool]


@dataclass(frozen=True)
class Format:
    """How the experts of a case are coded."""

    bits: int
    book: Codebook


FULL = (Format(2, Codebook.MCG), Format(3, Codebook.MCG))
BRIEF = (
    Format(1, Codebook.MCG),
    Format(4, Codebook.MCG),
    Format(2, Codebook.DEFAULT),
    Format(3, Codebook.DEFAULT),
    Format(2, Codebook.MUL1),
    Format(3, Codebook.MUL1),
)
BRIEF_ROWS = (1, 2, 5, 8, 17)


@dataclass(frozen=True)
class Reading:
    """One call compared with the reference."""

    relative_error: float
    norm_ratio: float
    finite: bool
    repeat_equal: bool
    declined: str


def run(
    library: Library, seed: int, *, rows: Sequence[int] = (*DECODE_ROWS, *PREFILL_ROWS), threads: int = 2
) -> list[Fact]:
    """All cases. ``seed`` decides the tensors, routes and inputs; the formats in brief use those of BRIEF_ROWS only."""
    facts = []
    for form in (*FULL, *BRIEF):
        chosen = [count for count in rows if form in FULL or count in BRIEF_ROWS]
        draw = np.random.default_rng([seed, form.bits, form.book.abi])
        experts = layers.experts(draw, SHAPE, form.bits, form.book)
        facts += list(measure(library, experts, form, chosen, draw, threads=threads))
    return facts


def measure(
    library: Library,
    experts: Sequence[Expert],
    form: Format,
    row_counts: Iterable[int],
    draw: np.random.Generator,
    *,
    threads: int = 2,
) -> Iterator[Fact]:
    """One fact a row count: the worst over every kind of route and input, which the id names."""
    table, reference, pools = Table(experts), Reference(experts), (parallel.single(), parallel.host(threads))
    shape = Shape(table.hidden, table.intermediate, len(table), SHAPE.topk)
    for rows in row_counts:
        readings: list[tuple[Route, Inputs, Reading]] = []
        for number, (route, kind) in enumerate((route, kind) for route in ROUTES for kind in INPUTS):
            x = layers.inputs(draw, kind, shape, rows)
            ids = layers.routes(draw, route, shape, rows)
            weights = draw.uniform(0.05, 1.0, ids.shape).astype(np.float32)
            expected = reference.forward(x, ids, weights, LIMIT)
            outputs = [np.full_like(x, np.nan) for _ in range(2)]
            declined = ""
            for out, pool in zip(outputs, pools, strict=True):
                # Consecutive cases play different layers: a fault may sit in one only.
                declined = declined or library.forward(
                    x, ids, weights, table, out=out, parallel=pool, limit=LIMIT, layer=number % 2
                )
            readings.append((route, kind, compare(outputs, expected, declined)))
        yield _fact(form, rows, readings)


def compare(outputs: Sequence[NDArray[np.float32]], expected: NDArray[np.float64], declined: str) -> Reading:
    """Worst row of the first output against the reference; both outputs against each other, bit by bit."""
    if declined:
        return Reading(0.0, 1.0, True, True, declined)
    out = outputs[0].astype(np.float64)
    finite = bool(np.isfinite(out).all())
    if not finite:
        return Reading(1.0, 0.0, False, bool(np.array_equal(outputs[0], outputs[1])), "")
    norms, scale = np.linalg.norm(out, axis=1), np.linalg.norm(expected, axis=1)
    small = scale <= SMALL_ROW
    errors = np.linalg.norm(out - expected, axis=1) / np.where(small, SMALL_SCALE, scale)
    ratios = np.where(small, 1.0, norms / np.where(small, 1.0, scale))
    return Reading(
        relative_error=float(errors.max()),
        norm_ratio=float(ratios[np.abs(ratios - 1.0).argmax()]),
        finite=True,
        repeat_equal=bool(np.array_equal(outputs[0].view(np.uint32), outputs[1].view(np.uint32))),
        declined="",
    )


def _fact(form: Format, rows: int, readings: Sequence[tuple[Route, Inputs, Reading]]) -> Fact:
    each = [reading for _, _, reading in readings]
    route, kind, worst = max(readings, key=lambda one: (not one[2].finite, one[2].relative_error))
    ratio = max((reading.norm_ratio for reading in each), key=lambda value: abs(value - 1.0))
    return {
        "id": f"{form.book.value}-k{form.bits}-m{rows}-{route}-{kind}",
        "rows": rows,
        "bits": form.bits,
        "relative_error": _decimal(worst.relative_error),
        "norm_ratio": _decimal(ratio),
        "finite": all(reading.finite for reading in each),
        "repeat_equal": all(reading.repeat_equal for reading in each),
        "declined": next((reading.declined for reading in each if reading.declined), ""),
    }


def _decimal(value: float) -> str:
    """Six significant digits as decimal text; a float's own text may carry a plus sign in its exponent."""
    return f"{value:.6g}".replace("e+", "e")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the facts as JSON, or a summary; exit 1 where a case lies outside the campaign's limits (B2, B6, B7)."""
    parser = argparse.ArgumentParser(prog="python -m carve_kernels.desk.parity", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--variant", help="build and judge this variant of the checkout")
    what.add_argument("--library", type=Path, help="judge this built library")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", default=[*DECODE_ROWS, *PREFILL_ROWS])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "passive"
    )  # read when the pool is first used; correctness needs no spinning
    library = Library(given.library or build(given.variant))
    facts = run(library, given.seed, rows=given.rows, threads=given.threads)
    ran = [fact for fact in facts if not fact["declined"]]
    bad = [
        fact
        for fact in ran
        if not (fact["finite"] and fact["repeat_equal"])
        or float(fact["relative_error"]) > 2e-3
        or abs(float(fact["norm_ratio"]) - 1.0) > 0.01
    ]
    if given.json:
        sys.stdout.write(json.dumps({"library": library.describe, "cases": facts}) + "\n")
    else:
        worst = max((float(fact["relative_error"]) for fact in ran), default=0.0)
        reasons = sorted({str(fact["declined"]) for fact in facts if fact["declined"]})
        lines = [f"{library.describe['name']} ({library.describe['isa']}): {len(facts)} cases, {len(ran)} ran"]
        lines += [f"  declined: {', '.join(reasons)}"] if reasons else []
        lines += [f"  worst relative error {worst:.2e}; outside the limits: {len(bad)}"]
        lines += [
            f"    {fact['id']}: error {fact['relative_error']}, norm ratio {fact['norm_ratio']}" for fact in bad[:20]
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
