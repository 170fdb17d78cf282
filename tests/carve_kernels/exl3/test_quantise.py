"""Trellis search and quantisation of a layer: identical on every instruction set, and as good as theory says."""

from pathlib import Path

import numpy as np
import pytest
from carve_kernels.exl3 import codebook, linear, native, quantise, trellis
from carve_kernels.exl3.codebook import Codebook
from carve_kernels.exl3.native import Isa
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import InputError, StateError

# Mean squared error on standard normal weights: the rate-distortion bound is 4^-K, QTIP (arXiv 2406.11235, table 1)
# reports 0.069 for a 2-bit trellis of 2^16 states.
KNOWN_ERROR = {1: 0.272, 2: 0.069, 3: 0.0177, 4: 0.0047}


def _normal(tiles: int, book: Codebook, seed: int = 0) -> np.ndarray:
    spread = codebook.table(book).astype(np.float64).std()
    return np.asarray(np.random.default_rng(seed).standard_normal((tiles, 256)) * spread, dtype=np.float32)


def _error(tiles: np.ndarray, states: np.ndarray, book: Codebook) -> float:
    weights = codebook.table(book)[states].astype(np.float64)
    return float(((weights - tiles) ** 2).mean() / (tiles.astype(np.float64) ** 2).mean())


@pytest.mark.parametrize("isa", [isa for isa in Isa if isa != Isa.SCALAR and isa <= native.best_isa()])
@pytest.mark.parametrize("bits", trellis.BITS)
def test_instruction_sets_agree_to_the_bit(bits: int, isa: Isa) -> None:
    tiles = _normal(1, Codebook.MCG, seed=bits)
    assert (native.search(tiles, bits, Codebook.MCG, isa) == native.search(tiles, bits, Codebook.MCG, Isa.SCALAR)).all()


@pytest.mark.parametrize("book", list(Codebook))
@pytest.mark.parametrize("bits", KNOWN_ERROR)
def test_error_is_near_the_known_distortion(bits: int, book: Codebook) -> None:
    tiles = _normal(24, book)
    error = _error(tiles, native.search(tiles, bits, book), book)
    assert 4.0**-bits < error
    assert error == pytest.approx(KNOWN_ERROR[bits], rel=0.07)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.sampled_from(list(Codebook)), st.floats(0, 100))
def test_any_tile_gets_a_closed_ring_that_decodes_to_what_was_chosen(
    seed: int, bits: int, book: Codebook, size: float
) -> None:
    tiles = (np.random.default_rng(seed).standard_normal((1, 256)) * size).astype(np.float32)
    states = native.search(tiles, bits, book)
    assert (trellis.windows(trellis.pack(states, bits)) == states).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_what_a_trellis_decodes_to_is_found_again(seed: int, bits: int) -> None:
    words = np.random.default_rng(seed).integers(0, 1 << 16, (1, 16 * bits), dtype=np.uint16)
    weights = codebook.table(Codebook.MCG)[trellis.windows(words)].astype(np.float32)
    found = codebook.table(Codebook.MCG)[native.search(weights, bits, Codebook.MCG)].astype(np.float32)
    assert (found == weights).all()


@pytest.mark.parametrize(
    ("tiles", "bits", "message"),
    [
        (np.zeros((1, 128), dtype=np.float32), 2, "not tiles"),
        (np.zeros((1, 256), dtype=np.float32), 9, "out of range"),
        (np.full((1, 256), np.nan, dtype=np.float32), 2, "cannot be quantised"),
    ],
)
def test_bad_input_is_refused(tiles: np.ndarray, bits: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        native.search(tiles, bits, Codebook.MCG)


def _weight(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    uneven = rng.uniform(0.2, 3, (256, 1)) * rng.uniform(0.5, 2, (1, 128))
    return rng.standard_normal((256, 128)) * uneven * 0.02


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_layer_error_is_that_of_normal_weights(bits: int) -> None:
    weight = _weight()
    result = quantise.quantise_linear(weight, bits, Codebook.MCG, seed=1)
    assert result.relative_error == pytest.approx(KNOWN_ERROR[bits], rel=0.08)
    difference = linear.dequantise(result.linear) - weight
    assert result.relative_error == pytest.approx((difference**2).sum() / (weight**2).sum())
    assert result.output_error is None


def test_same_seed_same_bits_other_seed_other_signs() -> None:
    first, again, other = (quantise.quantise_linear(_weight(), 2, Codebook.MCG, seed).linear for seed in (1, 1, 2))
    assert (first.trellis == again.trellis).all()
    assert (first.suh == again.suh).all()
    assert (np.sign(first.suh) != np.sign(other.suh)).any()


def test_feedback_spares_the_directions_that_inputs_use() -> None:
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((1000, 256)) @ (
        rng.standard_normal((256, 256)) * np.exp(-np.arange(256) / 40)[:, None]
    )
    weight = _weight()
    plain = quantise.quantise_linear(weight, 2, Codebook.MCG, 1)
    fed = quantise.quantise_linear(weight, 2, Codebook.MCG, 1, hessian=inputs.T @ inputs / len(inputs))

    def output_error(result: quantise.Quantised) -> float:
        return float(
            ((inputs @ (linear.dequantise(result.linear) - weight)) ** 2).sum() / ((inputs @ weight) ** 2).sum()
        )

    assert output_error(fed) < output_error(plain) / 3
    assert fed.output_error == pytest.approx(output_error(fed), rel=1e-6)


def test_dead_channels_stay_dead() -> None:
    weight = _weight()
    weight[:, 5] = 0
    restored = linear.dequantise(quantise.quantise_linear(weight, 2, Codebook.MCG, 0).linear)
    assert (restored[:, 5] == 0).all()
    nothing = quantise.quantise_linear(np.zeros((128, 128)), 2, Codebook.MCG, 0)
    assert (linear.dequantise(nothing.linear) == 0).all()
    assert nothing.relative_error == 0


@pytest.mark.parametrize(
    ("weight", "hessian", "message"),
    [
        (np.zeros((128, 130)), None, "Hadamard blocks"),
        (np.full((128, 128), np.inf), None, "cannot be quantised"),
        (np.zeros((128, 128)), np.eye(64), "Hessian does not fit"),
    ],
)
def test_bad_layers_are_refused(weight: np.ndarray, hessian: np.ndarray | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        quantise.quantise_linear(weight, 2, Codebook.MCG, 0, hessian)


def test_compiler_is_named_when_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(StateError, match=r"no C\+\+ compiler"):
        native.build()
    monkeypatch.setenv("CXX", "g++ -DCARVE_BROKEN=( -include /dev/null/none")
    monkeypatch.setenv("CARVE_CACHE", str(tmp_path))
    with pytest.raises(InputError, match="does not compile"):
        native.build()
    assert not list(tmp_path.rglob("*.so"))
