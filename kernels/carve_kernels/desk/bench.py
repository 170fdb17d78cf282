"""Times variants against each other in one process: ``python -m carve_kernels.desk.bench``.

The variants alternate call by call on the same inputs, and each call uses the next of several layers, so that nobody
times a cache that serving would not have. Times are a clock inside this process: for tuning, not for a verdict.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from carve_kernels import parallel
from carve_kernels.build import build
from carve_kernels.desk import layers
from carve_kernels.desk.layers import Shape
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import Library, Table, matrix
from runner.errors import InputError

SHAPES = {"mini": Shape(256, 512, 8, 4), "wide": Shape(4096, 256, 256, 6)}
"""A layer of the small pack, and one rank's share (TP 8) of the campaign's model."""


@dataclass(frozen=True)
class Timing:
    """One variant on one shape; times in microseconds a call, rates in 10^9 weights a second."""

    shape: str
    bits: int
    rows: int
    variant: str
    calls: int
    experts: float
    """Mean number of different experts a call."""
    minimum_us: float
    median_us: float
    p95_us: float
    weights_rate: float
    """Weights of the different experts of a call / median time: what has to be decoded at least."""
    decode_floor_us: float
    """Those weights at the decode rate of this run, over the threads."""
    memory_floor_us: float
    """Those weights' bytes at the copy rate of this run."""


def decode_rate(bits: int, book: Codebook, seconds: float = 0.2) -> float:
    """Weights a second that one core decodes from a trellis in its caches (256 x 512)."""
    library = Library(build("decode"))
    part = layers.linear(np.random.default_rng(0), 256, 512, bits, book)
    coded = matrix(part.trellis, part.suh, part.svh, part.codebook.abi)
    out = np.zeros(1, np.float32)
    best, repeats = float("inf"), 8
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        library.decode(coded, out, repeats)
        best = min(best, time.perf_counter() - start)
    return repeats * 256 * 512 / best


def memory_rate() -> float:
    """Bytes a second that one core reads from memory beyond the caches (sum over 256 MB)."""
    block = np.ones(1 << 25, np.float64)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        block.sum()
        times.append(time.perf_counter() - start)
    return block.nbytes / min(times)


def compare(
    variants: Sequence[str], name: str, bits: int, row_counts: Sequence[int], *, calls: int, threads: int
) -> list[Timing]:
    """Alternating calls of every variant at every row count; InputError where a variant declines."""
    shape, draw = SHAPES[name], np.random.default_rng(1)
    pool = parallel.host(threads)
    libraries = {variant: Library(build(variant)) for variant in variants}
    stack = [Table(layers.experts(draw, shape, bits, Codebook.MCG)) for _ in range(4 if shape.experts < 64 else 1)]
    decode, memory = decode_rate(bits, Codebook.MCG), memory_rate()
    bytes_per_weight = bits / 8
    timings = []
    for rows in row_counts:
        times: dict[str, list[float]] = {variant: [] for variant in variants}
        unique = []
        for call in range(calls):
            x = layers.inputs(draw, "gaussian", shape, rows)
            ids = np.stack([draw.permutation(shape.experts)[: shape.topk] for _ in range(rows)]).astype(np.int32)
            weights = draw.random(ids.shape, np.float32)
            out = np.empty_like(x)
            unique.append(len(np.unique(ids)))
            order = list(variants) if call % 2 else list(reversed(variants))
            for variant in order:
                start = time.perf_counter()
                declined = libraries[variant].forward(
                    x, ids, weights, stack[call % len(stack)], out=out, parallel=pool, limit=10.0
                )
                times[variant].append((time.perf_counter() - start) * 1e6)
                if declined:
                    raise InputError("variant declined", where=variant, found=declined)
        work = float(np.mean(unique)) * shape.weights_per_expert
        for variant in variants:
            measured = np.array(times[variant][min(4, calls // 2) :])
            median = float(np.median(measured))
            timings.append(
                Timing(
                    shape=name,
                    bits=bits,
                    rows=rows,
                    variant=variant,
                    calls=len(measured),
                    experts=float(np.mean(unique)),
                    minimum_us=float(measured.min()),
                    median_us=median,
                    p95_us=float(np.percentile(measured, 95)),
                    weights_rate=work / median / 1e3,
                    decode_floor_us=work / decode / threads * 1e6,
                    memory_floor_us=work * bytes_per_weight / memory * 1e6,
                )
            )
    return timings


def table(timings: Sequence[Timing]) -> str:
    """The timings for a person."""
    head = ("shape", "bits", "rows", "variant", "experts", "min", "p50", "p95 us", "Gw/s", "decode", "memory floor us")
    lines = [" ".join(f"{word:>{14 if word == 'variant' else 8}}" for word in head)]
    for t in timings:
        words = [f"{t.shape:>8}", f"{t.bits:>8}", f"{t.rows:>8}", f"{t.variant:>14}"]
        numbers = (t.experts, t.minimum_us, t.median_us, t.p95_us, t.weights_rate, t.decode_floor_us, t.memory_floor_us)
        lines.append(" ".join([*words, *(f"{number:>8.2f}" for number in numbers)]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table (or JSON) of every combination asked for."""
    parser = argparse.ArgumentParser(prog="python -m carve_kernels.desk.bench", description=__doc__)
    parser.add_argument("--variants", nargs="+", default=["incumbent", "lna2"])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["mini"])
    parser.add_argument("--bits", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--decode", action="store_true", help="decode rates of one core only")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.decode:
        rates = {f"{book}-K{bits}": decode_rate(bits, book) / 1e9 for book in Codebook for bits in given.bits}
        text = json.dumps(rates) if given.json else "\n".join(f"{k:>12} {v:6.2f} Gw/s" for k, v in rates.items())
    else:
        timings = [
            timing
            for name in given.shapes
            for bits in given.bits
            for timing in compare(given.variants, name, bits, given.rows, calls=given.calls, threads=given.threads)
        ]
        text = json.dumps([asdict(timing) for timing in timings]) if given.json else table(timings)
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
