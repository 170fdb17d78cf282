"""The witness with real libraries and no engine: what it counts, declines, perturbs and digests."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from carve_kernels import parallel
from carve_kernels.build import build
from carve_kernels.desk import layers
from carve_kernels.exl3 import linear as reference
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.library import Library, Table

from serve.witness.build import witness_library
from serve.witness.cpu import CpuProcessor
from serve.witness.modules import LinearModule, Matrix
from serve.witness.processor import Experts
from serve.witness.witness import ArgumentError, Witness

HIDDEN, INTERMEDIATE, EXPERTS, TOPK = 256, 128, 4, 2
Seen = tuple[Witness, Experts, LinearModule]
VARIANTS = ("incumbent", "lna2", "knock-out-zero", "silent-fallback")


def matrix(inputs: int, outputs: int, seed: int) -> Matrix:
    """Random bits of about unit gain."""
    rng = np.random.default_rng(seed)
    trellis = rng.integers(-(1 << 15), 1 << 15, (inputs // 16, outputs // 16, 32), dtype=np.int16)
    suh, svh = (rng.choice([-scale, scale], width) for width, scale in ((inputs, inputs**-0.5), (outputs, 1.0)))
    return Matrix(
        torch.from_numpy(trellis),
        torch.from_numpy(suh.astype(np.float16)),
        torch.from_numpy(svh.astype(np.float16)),
        "mcg",
    )


def witness(variants: dict[str, str] | None = None) -> Witness:
    """A fresh one over built libraries."""
    libraries = variants or {name: str(build(name)) for name in VARIANTS}
    environment = {"CARVE_LIBRARIES": json.dumps(libraries)}
    return Witness(environment, CpuProcessor(witness_library(), threads=1), rank=0, ranks=1)


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    # Copies: a library counts for its whole process, and other tests of this process call the built files too.
    made = witness({name: str(shutil.copy(build(name), tmp_path)) for name in VARIANTS})
    experts = [
        (
            matrix(HIDDEN, INTERMEDIATE, 3 * n),
            matrix(HIDDEN, INTERMEDIATE, 3 * n + 1),
            matrix(INTERMEDIATE, HIDDEN, 3 * n + 2),
        )
        for n in range(EXPERTS)
    ]
    routed = made.register_experts("layers.1.experts", experts, topk=TOPK, limit=0.0)
    dense = made.register_linear("layers.0.gate_up", [matrix(HIDDEN, 128, 90), matrix(HIDDEN, 256, 91)])
    assert isinstance(dense, LinearModule)
    return made, routed, dense


def call(made: Witness, routed: Experts, variant: str, rows: int) -> tuple[torch.Tensor | None, str]:
    """One call on fixed input."""
    x = torch.linspace(-2, 2, rows * HIDDEN).reshape(rows, HIDDEN)
    ids = torch.arange(rows * TOPK, dtype=torch.int32).reshape(rows, TOPK) % EXPERTS
    return made.run_experts(variant, routed, x, ids, torch.full((rows, TOPK), 0.5))


def counted(made: Witness, variant: str) -> dict[int, int]:
    """Routed launches of a variant by rows, counted before or elsewhere left out by the caller."""
    return {
        rows: count
        for row in made.counters().witness
        if (row.variant, row.op) == (variant, "routed_experts")
        for rows, count in row.rows
    }


def test_launches_and_declines_are_counted_by_rows(seen: Seen) -> None:
    made, routed, _ = seen
    before = counted(made, "incumbent")
    for rows in (1, 1, 64, 65, 200):
        assert call(made, routed, "incumbent", rows)[1] == ""
    after = counted(made, "incumbent")
    grown = {rows: count - before.get(rows, 0) for rows, count in after.items() if count != before.get(rows)}
    assert grown == {1: 2, 64: 1, 65: 2}
    assert call(made, routed, "silent-fallback", 3) == (None, "shape")
    (decline,) = [row for row in made.counters().declines if row.variant == "silent-fallback"]
    assert (decline.layer, decline.reason, decline.rows) == ("layers.1.experts", "shape", ((3, 1),))
    assert call(made, routed, "nobody", 3) == (None, "not-ready")


def test_the_candidates_own_count_agrees(seen: Seen) -> None:
    made, routed, _ = seen
    for rows in (1, 4):
        call(made, routed, "lna2", rows)
    rows_of = {
        side: {row.layer: row.rows for row in getattr(made.counters(), side) if row.variant == "lna2"}
        for side in ("witness", "candidate")
    }
    assert rows_of["witness"] == rows_of["candidate"] != {}


def test_linears_match_the_reference_and_count_once(seen: Seen) -> None:
    made, _, dense = seen
    x = torch.linspace(-1, 1, 3 * HIDDEN).reshape(3, HIDDEN)
    out, _ = made.run_linear("lna2", dense, x)
    assert out is not None
    expected = [
        reference.forward(
            x.numpy(), reference.Linear(m.trellis.numpy().view(np.uint16), m.suh.numpy(), m.svh.numpy(), Codebook.MCG)
        )
        for m in dense.matrices
    ]
    joined = np.concatenate(expected, axis=1)
    assert out.shape == (3, 384)
    assert np.linalg.norm(out.numpy() - joined) < 2e-3 * np.linalg.norm(joined)
    assert sum(row.launches for row in made.counters().witness if row.op == "linear") >= 1


@pytest.mark.parametrize("projection", ["gate", "up", "down"])
def test_a_perturbation_is_a_copy(seen: Seen, projection: str) -> None:
    made, routed, _ = seen
    digest = made.weights_digest({})
    right = call(made, routed, "incumbent", 2)[0]
    routed.perturb(1, projection, 1.5)
    moved = call(made, routed, "incumbent", 2)[0]
    assert right is not None and moved is not None
    assert not torch.equal(right, moved)
    assert made.weights_digest({}) == digest
    routed.unperturb()
    again = call(made, routed, "incumbent", 2)[0]
    assert again is not None and torch.equal(right, again)


def test_the_digest_covers_every_loaded_byte(seen: Seen) -> None:
    made, _, _ = seen
    weight = torch.ones(4)
    digest = made.weights_digest({"norm.weight": weight})
    assert digest == made.weights_digest({"norm.weight": weight.clone()})
    weight[3] = 1.0000001
    assert digest != made.weights_digest({"norm.weight": weight})
    assert digest != made.weights_digest({"other.weight": torch.ones(4)})


def test_an_unknown_variant_or_layer_is_an_argument_error(seen: Seen) -> None:
    made, _, _ = seen
    with pytest.raises(ArgumentError, match="no library for variant 'nobody'"):
        made.switch("nobody")
    with pytest.raises(ArgumentError, match="no routed experts at"):
        made.find_experts("layers.9")


def test_a_library_that_is_none_is_a_fault_of_its_variant(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not an object")
    made = witness({"incumbent": str(build("incumbent")), "lna2": str(broken)})
    assert list(made.libraries) == ["incumbent"]
    assert "broken.so" in made.faults["lna2"]
    with pytest.raises(RuntimeError, match="no incumbent library"):
        witness({"lna2": str(build("lna2"))})


def test_ours_shadows_nothing() -> None:
    script = "import carve_kernels, transformers, vllm, serve.plugin; print(transformers.__file__, vllm.__file__)"
    seen = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout
    assert "site-packages/transformers" in seen
    assert "site-packages/vllm" in seen


def test_a_library_that_counts_more_than_it_was_called_shows(seen: Seen, tmp_path: Path) -> None:
    """Calls behind the witness's back, on a layer that was never registered."""
    made, routed, _ = seen
    call(made, routed, "lna2", 1)
    native = Library(tmp_path / build("lna2").name)
    rng = np.random.default_rng(5)
    table = Table(layers.experts(rng, layers.Shape(HIDDEN, INTERMEDIATE, EXPERTS, TOPK), 2, Codebook.MCG))
    ids = np.zeros((1, TOPK), np.int32)
    x, weights = np.ones((1, HIDDEN), np.float32), np.ones((1, TOPK), np.float32)
    native.forward(x, ids, weights, table, out=np.empty_like(x), parallel=parallel.single(), layer=9)
    assert "unregistered layer 9" in {row.layer for row in made.counters().candidate}
    assert "unregistered layer 9" not in {row.layer for row in made.counters().witness}
