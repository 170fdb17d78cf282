"""The format reference: round trips, ring closure, orders and errors, by property."""

from collections.abc import Iterator

import numpy as np
import pytest
from carve_kernels.exl3 import codebook, hadamard, linear, pack_format, tile, trellis
from carve_kernels.exl3.codebook import Codebook
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import InputError

BITS = st.integers(1, 8)
SEEDS = st.integers(0, 2**32 - 1)


def _trellis(seed: int, bits: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 16, (*shape, 16 * bits), dtype=np.uint16)


def _layer(bits: int = 2, book: Codebook = Codebook.MCG, inputs: int = 128, outputs: int = 256) -> linear.Linear:
    rng = np.random.default_rng(bits)
    suh = (rng.choice([-1, 1], inputs) * 0.05).astype(np.float16)
    svh = rng.uniform(-1, 1, outputs).astype(np.float16)
    return linear.Linear(_trellis(0, bits, inputs // 16, outputs // 16), suh, svh, book)


@given(SEEDS, BITS)
def test_any_bits_unpack_to_a_closed_ring_and_pack_again(seed: int, bits: int) -> None:
    words = _trellis(seed, bits, 3)
    states = trellis.windows(words)
    assert states.shape == (3, 256)
    assert trellis.overlaps(states, bits).all()
    assert (trellis.pack(states, bits) == words).all()


@given(SEEDS, BITS)
def test_windows_are_the_stream_read_bit_by_bit(seed: int, bits: int) -> None:
    words = _trellis(seed, bits)
    stream = "".join(f"{word:032b}" for word in words.view("<u4"))
    ring = stream[-16:] + stream
    expected = [int(ring[(t + 1) * bits : (t + 1) * bits + 16], 2) for t in range(256)]
    assert trellis.windows(words).tolist() == expected


@given(SEEDS, BITS, st.integers(0, 255), st.integers(0, 15))
def test_a_broken_ring_is_refused(seed: int, bits: int, position: int, bit: int) -> None:
    states = trellis.windows(_trellis(seed, bits)).copy()
    states[position] ^= 1 << bit
    # Bits from K up repeat the state before, bits below 16 - K return in the state after: for K of at most 8, all.
    with pytest.raises(InputError, match="do not form a trellis"):
        trellis.pack(states, bits)


@pytest.mark.parametrize("words", [0, 8, 24, 144])
def test_only_trellis_shapes_have_bits(words: int) -> None:
    with pytest.raises(InputError, match="last dimension"):
        trellis.bits_of(np.zeros((1, 1, words), dtype=np.uint16))


@pytest.mark.parametrize(
    ("book", "state", "bits"),
    # Worked by hand from the definition: the product, its masked halves, their sum.
    [
        (Codebook.MCG, 0, 0x3F60),  # both halves 0x3b60 = 0.921875, twice that is 1.84375
        (Codebook.MUL1, 0, 0xC2E8),  # 1024 * 0.00676727 - 10.3828125 = -3.453125
        (Codebook.DEFAULT, 0, None),
    ],
)
def test_first_codebook_entry(book: Codebook, state: int, bits: int | None) -> None:
    value = codebook.decode(np.array([state], dtype=np.uint16), book)
    if bits is None:
        low, high = np.array([64248484], dtype=np.uint32).view(np.uint16)
        halves = (np.array([low, high]) & 0x8FFF ^ 0x3B60).astype(np.uint16).view(np.float16)
        assert value[0] == np.float16(np.float32(halves[0]) + np.float32(halves[1]))
    else:
        assert value.view(np.uint16)[0] == bits


@pytest.mark.parametrize(("book", "spread"), [(Codebook.DEFAULT, 1.244), (Codebook.MCG, 1.244), (Codebook.MUL1, 1.0)])
def test_codebooks_look_normal(book: Codebook, spread: float) -> None:
    values = codebook.table(book).astype(np.float64)
    assert abs(values.mean()) < 2e-3
    assert values.std() == pytest.approx(spread, rel=1e-3)
    assert ((values / values.std()) ** 4).mean() == pytest.approx(3, abs=0.4)


def test_tile_order_is_a_tensor_cores() -> None:
    assert sorted(tile.ORDER) == list(range(256))
    lane_5 = [(int(place) // 16, int(place) % 16) for place in tile.ORDER[40:48]]
    assert lane_5 == [(2, 1), (3, 1), (10, 1), (11, 1), (2, 9), (3, 9), (10, 9), (11, 9)]


@given(st.integers(1, 4), st.integers(1, 4))
def test_matrix_and_tiles_are_inverse(rows: int, columns: int) -> None:
    matrix = np.arange(rows * columns * 256).reshape(rows * 16, columns * 16)
    assert (tile.to_matrix(tile.from_matrix(matrix)) == matrix).all()


def test_hadamard_is_its_own_inverse_by_blocks() -> None:
    x = np.random.default_rng(0).standard_normal((3, 256))
    assert np.allclose(hadamard.transform(hadamard.transform(x)), x, atol=1e-6)
    one = np.zeros(256)
    one[200] = 1
    assert (hadamard.transform(one)[:128] == 0).all()


@pytest.mark.parametrize("book", list(Codebook))
@pytest.mark.parametrize("bits", [1, 2, 3, 8])
def test_forward_is_the_dequantised_product(bits: int, book: Codebook) -> None:
    layer = _layer(bits, book)
    x = np.random.default_rng(1).standard_normal((5, 128)).astype(np.float32)
    expected = x.astype(np.float64) @ linear.dequantise(layer).astype(np.float64)
    assert np.allclose(linear.forward(x, layer), expected, rtol=1e-4, atol=1e-5)


def test_dequantise_against_dense_matrices() -> None:
    layer = _layer()
    rotate_in, rotate_out = (np.kron(np.eye(n // 128), hadamard.matrix()) for n in (128, 256))
    coded = linear.reconstruct(layer.trellis, layer.codebook).astype(np.float64)
    dense = np.diag(layer.suh.astype(float)) @ rotate_in @ coded @ rotate_out @ np.diag(layer.svh.astype(float))
    assert np.allclose(linear.dequantise(layer), dense, atol=1e-6)


@pytest.mark.parametrize("book", list(Codebook))
def test_tensors_round_trip(book: Codebook) -> None:
    layer = _layer(book=book)
    tensors = pack_format.to_tensors("m.down_proj", layer)
    assert sorted(tensors) == sorted(pack_format.tensor_names("m.down_proj", book))
    assert pack_format.modules(tensors) == ["m.down_proj"]
    again = pack_format.from_tensors("m.down_proj", tensors)
    assert (again.codebook, again.bits) == (book, 2)
    assert (again.trellis == layer.trellis).all()


def test_marker_value_is_the_multiplier() -> None:
    assert pack_format.MARKERS[Codebook.MCG] == -877912083


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m.svh": None}, "incomplete"),
        ({"m.mcg": np.array(7, dtype=np.int32)}, "unknown codebook marker"),
        ({"m.mul1": np.array(pack_format.MARKERS[Codebook.MUL1], dtype=np.int32)}, "two codebooks"),
        ({"m.trellis": np.zeros((8, 16, 32), dtype=np.int32)}, "wrong type"),
        ({"m.trellis": np.zeros((8, 16, 33), dtype=np.int16)}, "last dimension"),
        ({"m.suh": np.zeros(256, dtype=np.float16)}, "disagree"),
        ({"m.suh": np.zeros(128, dtype=np.float32)}, "wrong type"),
        ({"m.trellis": np.zeros((1, 16, 32), dtype=np.int16), "m.suh": np.zeros(16, dtype=np.float16)}, "no Hadamard"),
    ],
)
def test_malformed_modules_are_named(change: dict[str, np.ndarray | None], message: str) -> None:
    tensors = pack_format.to_tensors("m", _layer()) | change
    present = {name: array for name, array in tensors.items() if array is not None}
    with pytest.raises(InputError, match=message) as caught:
        pack_format.from_tensors("m", present)
    assert "m" in caught.value.where


def test_the_codebook_of_a_module_is_a_look_and_no_walk() -> None:
    """A pack has a hundred thousand tensors and is asked for each of its modules."""

    class Named(dict[str, int]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("walked over")

    assert pack_format.codebook_of("a", Named({"a.trellis": 0, "a.mcg": 0})) is Codebook.MCG
    assert pack_format.codebook_of("b", Named({"a.trellis": 0, "a.mcg": 0})) is Codebook.DEFAULT
