"""The bitstream of a tile: 256 overlapping 16-bit states in 256 * K bits.

Write the K new bits of every position one after another, most significant bit first::

    position      0        1        2       ...      255
    new bits   bbbbbbbb bbbbbbbb bbbbbbbb   ...   bbbbbbbb      (K bits each, 256 * K in all)

The *state* of a position is the 16 bits that end with its own new bits. It therefore repeats ``16 - K`` bits of the
state before, and the state of position 0 reaches back over the start of the stream to its end: the trellis *bites its
tail*.

In memory the stream is cut into 32-bit words, most significant bit first, each stored as a little-endian uint32. Seen
as the uint16 array of the file, the two halves of every pair of words are therefore exchanged.

Source: campaign section 5.1 (``start = ((t + 257) * K - 16) mod 256 K``) and exllamav3 1.4.5; checked by ``golden``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runner.errors import InputError

TILE_WEIGHTS = 256
STATE_BITS = 16
BITS = range(1, 9)
"""The possible numbers of bits a weight, K."""


def words_per_tile(bits: int) -> int:
    """Number of uint16 words of a tile: 16 * K. InputError unless K is 1 to 8."""
    if bits not in BITS:
        raise InputError("bits a weight out of range", expected="1 to 8", found=str(bits))
    return TILE_WEIGHTS * bits // STATE_BITS


def bits_of(trellis: NDArray[np.uint16]) -> int:
    """K as the last dimension of a trellis ``[..., 16 * K]`` tells it."""
    words = trellis.shape[-1] if trellis.ndim else 0
    if words % 16 or words // 16 not in BITS:
        raise InputError("not the last dimension of a trellis", expected="16 * K, K from 1 to 8", found=str(words))
    return words // 16


def windows(trellis: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """The states of every tile: ``trellis [..., 16 * K]`` to ``[..., 256]``, both uint16."""
    bits = bits_of(trellis)
    stream = _exchange_pairs(trellis).astype(np.uint32)
    start = (np.arange(TILE_WEIGHTS) * bits + bits - STATE_BITS) % (TILE_WEIGHTS * bits)
    word, offset = start // STATE_BITS, (start % STATE_BITS).astype(np.uint32)
    following = (word + 1) % stream.shape[-1]
    pair = (stream[..., word] << np.uint32(16)) | stream[..., following]
    return np.ascontiguousarray(pair >> (np.uint32(16) - offset)).astype(np.uint16)


def pack(states: NDArray[np.uint16], bits: int) -> NDArray[np.uint16]:
    """The trellis ``[..., 16 * K]`` of ``states [..., 256]``; InputError where neighbouring states do not overlap."""
    words_per_tile(bits)
    if states.shape[-1:] != (TILE_WEIGHTS,):
        raise InputError("not the states of a tile", expected="a last dimension of 256", found=str(states.shape))
    broken = np.argwhere(~overlaps(states, bits))
    if len(broken):
        raise InputError(
            "states do not form a trellis",
            where=f"tile and position {broken[0].tolist()}",
            expected=f"the first {STATE_BITS - bits} bits of a state equal to the last ones of the state before",
            found=f"{len(broken)} breaks",
        )
    positions = np.arange(bits - 1, -1, -1, dtype=np.uint16)
    stream_bits = (states[..., np.newaxis] >> positions) & np.uint16(1)
    flat = np.ascontiguousarray(stream_bits, dtype=np.uint8).reshape(*states.shape[:-1], TILE_WEIGHTS * bits)
    stream = np.packbits(flat, axis=-1).view(">u2").astype(np.uint16)
    return _exchange_pairs(stream)


def overlaps(states: NDArray[np.uint16], bits: int) -> NDArray[np.bool_]:
    """Whether each state of ``[..., 256]`` continues the one before it; position 0 is compared with position 255."""
    kept_of_last = np.roll(states, 1, axis=-1) & np.uint16(0xFFFF >> bits)
    result: NDArray[np.bool_] = kept_of_last == states >> np.uint16(bits)
    return result


def _exchange_pairs(words: NDArray[np.uint16]) -> NDArray[np.uint16]:
    pairs = words.reshape(*words.shape[:-1], -1, 2)
    return pairs[..., ::-1].reshape(words.shape)
