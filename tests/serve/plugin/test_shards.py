"""Shards of an EXL3 matrix are EXL3 matrices: put together they are the whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from carve_kernels.exl3 import linear as reference
from carve_kernels.exl3.codebook import Codebook
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.plugin.shards import Cut, Loading
from serve.witness.modules import Matrix


def coded(inputs: int, outputs: int, bits: int, book: Codebook, seed: int) -> reference.Linear:
    """A matrix of random bits."""
    rng = np.random.default_rng(seed)
    trellis = rng.integers(0, 1 << 16, (inputs // 16, outputs // 16, 16 * bits), dtype=np.uint16)
    suh, svh = (rng.choice([-1.0, 1.0], width).astype(np.float16) for width in (inputs, outputs))
    return reference.Linear(trellis, suh, svh, book)


def shard(whole: reference.Linear, cut: Cut) -> reference.Linear:
    """What a rank loads of it."""
    loading = Loading("m", cut)
    loading.take("trellis", torch.from_numpy(whole.trellis.view(np.int16)))
    loading.take("suh", torch.from_numpy(whole.suh))
    loading.take("svh", torch.from_numpy(whole.svh))
    if whole.codebook is not Codebook.DEFAULT:
        loading.take(whole.codebook.value, torch.zeros(1, dtype=torch.int32))
    matrix = loading.finish()
    assert isinstance(matrix, Matrix)
    assert (matrix.bits, matrix.codebook) == (whole.bits, whole.codebook.value)
    return reference.Linear(
        matrix.trellis.numpy().view(np.uint16), matrix.suh.numpy(), matrix.svh.numpy(), Codebook(matrix.codebook)
    )


@settings(max_examples=10, deadline=None)
@given(
    bits=st.integers(1, 8),
    book=st.sampled_from(list(Codebook)),
    ranks=st.sampled_from([1, 2, 4]),
    along=st.sampled_from(["in", "out"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_shards_put_together_are_the_whole(bits: int, book: Codebook, ranks: int, along: str, seed: int) -> None:
    whole = coded(512, 512, bits, book, seed)
    parts = [reference.dequantise(shard(whole, Cut(rank, ranks, along))) for rank in range(ranks)]
    joined = np.concatenate(parts, axis=0 if along == "in" else 1)
    # Matrix products of another width may add in another order.
    np.testing.assert_allclose(joined, reference.dequantise(whole), rtol=0, atol=1e-5)


def test_a_shard_that_cuts_a_hadamard_block_is_refused() -> None:
    with pytest.raises(ValueError, match=r"m\.trellis: 384 features over 2 ranks; a shard must be a multiple of 128"):
        shard(coded(256, 384, 2, Codebook.MCG, 0), Cut(1, 2, "out"))


def test_tensors_that_never_came_are_named() -> None:
    loading = Loading("m", Cut())
    loading.take("suh", torch.zeros(128, dtype=torch.float16))
    with pytest.raises(ValueError, match="m: the pack did not give trellis, svh"):
        loading.finish()
