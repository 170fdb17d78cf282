"""The arithmetic of floors against figures that the campaign measured or derived."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.roofline import (
    agrees,
    expert_bytes,
    floor_microseconds,
    linear_bytes,
    rank_shape,
    unique_experts,
    whole_ceiling,
)


@pytest.mark.parametrize(
    ("inside", "outside", "expected"),
    [
        (4096, 1024, 3_155_968),
        (4096, 512, 1_582_080),
        (4096, 256, 795_136),
        (1024, 8192, 6_309_888),
        (256, 4096, 795_136),
    ],
)
def test_bytes_of_six_bit_linears(inside: int, outside: int, expected: int) -> None:
    assert linear_bytes(inside, outside, 6) == expected


def test_bytes_of_experts_and_what_a_step_touches() -> None:
    assert expert_bytes(4096, 256, 2) == 812_544
    assert expert_bytes(4096, 256, 3) == 1_205_760
    assert round(unique_experts(256, 6, 4), 2) == 22.95
    assert round(unique_experts(256, 6, 16), 2) == 80.18


def test_a_floor_is_bytes_over_bandwidth() -> None:
    assert round(floor_microseconds(Decimal(23 * 812_544), Decimal(270)), 1) == Decimal("69.2")
    for wrong in (Decimal(0), Decimal(-1)):
        with pytest.raises(ValueError, match="positive"):
            floor_microseconds(Decimal(1), wrong)


def test_tensor_parallelism_divides_one_side_or_none() -> None:
    assert rank_shape(2048, 4096, 8, "in") == (256, 4096)
    assert rank_shape(4096, 2048, 8, "out") == (4096, 256)
    assert rank_shape(4096, 1024, 8, "none") == (4096, 1024)
    with pytest.raises(ValueError, match="cannot be divided among 7"):
        rank_shape(2048, 4096, 7, "in")


def test_a_whole_gains_at_most_what_its_part_takes() -> None:
    assert round(whole_ceiling(Decimal("0.31")), 2) == Decimal("1.45")
    with pytest.raises(ValueError, match="between 0 and 1"):
        whole_ceiling(Decimal(1))


@pytest.mark.parametrize(("shape", "words"), [((4095, 256, 2), "tiles"), ((4096, 256, 9), "1 to 8 bits")])
def test_what_is_no_weight_is_refused(shape: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        linear_bytes(*shape)


@given(st.decimals(min_value=-1000, max_value=1000, places=6), st.integers(min_value=0, max_value=5))
def test_a_number_agrees_with_its_own_rounding_and_not_with_the_next(value: Decimal, places: int) -> None:
    written = round(value, places)
    assert agrees(str(written), value)
    step = Decimal(10) ** -places
    assert not agrees(str(written + 2 * step), value)


def test_a_nought_agrees_with_nought_however_it_is_written() -> None:
    for written in ("0", "0e20", "0.0e300"):
        assert agrees(written, 0)
        assert not agrees(written, 812_544)
    assert agrees("1e20", 1.2e20)
    assert agrees("0.0", Decimal("0.04"))
    assert not agrees("0.0", Decimal("0.06"))


def test_what_no_step_has_is_refused_and_many_rows_touch_every_expert() -> None:
    assert unique_experts(256, 6, 2**62) == 256
    assert unique_experts(256, 0, 4) == 0
    with pytest.raises(ValueError, match="below nought"):
        unique_experts(1, 6, -1)
