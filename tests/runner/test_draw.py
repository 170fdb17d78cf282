"""Draws: functions of seed, plan and label alone, uniform, and opened by the commitment."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.draw import ABBA, BAAB, Draw, commitment, new_seed

SEED = bytes(range(32))
PLAN = "ab" * 32
labels = st.text(max_size=20)


def test_a_known_answer_never_changes() -> None:
    draw = Draw(SEED, PLAN)
    assert draw.integers("golden", 4, 1000) == (603, 655, 31, 128)
    assert draw.permutation("golden", 8) == [4, 1, 2, 0, 7, 5, 6, 3]
    assert commitment(SEED) == "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"


@given(labels, st.integers(1, 50))
def test_a_permutation_holds_everything_once(label: str, count: int) -> None:
    assert sorted(Draw(SEED, PLAN).permutation(label, count)) == list(range(count))


@given(labels, labels)
def test_labels_are_streams_of_their_own(one: str, other: str) -> None:
    draw = Draw(SEED, PLAN)
    first = draw.integers(one, 4, 1 << 64)
    assert (first == draw.integers(other, 4, 1 << 64)) == (one == other)
    assert first == Draw(SEED, PLAN).integers(one, 4, 1 << 64)


def test_another_plan_or_seed_draws_otherwise() -> None:
    base = Draw(SEED, PLAN).integers("x", 4, 1 << 64)
    assert base != Draw(SEED, "cd" * 32).integers("x", 4, 1 << 64)
    assert base != Draw(bytes(32), PLAN).integers("x", 4, 1 << 64)


def test_integers_are_uniform() -> None:
    counts = Counter(Draw(SEED, PLAN).integers("uniform", 6000, 6))
    assert sorted(counts) == list(range(6))
    assert all(880 < count < 1120 for count in counts.values())  # ±120 is 4 standard deviations


@given(st.integers(1, 1 << 64), st.lists(st.integers(0, (1 << 64) - 1), max_size=4))
def test_words_past_the_last_whole_multiple_are_dropped(bound: int, words: list[int]) -> None:
    """A bound of 2⁶⁴ drops none, one above its half nearly half of them."""
    edge = (1 << 64) - (1 << 64) % bound
    tried = [*words, *(word for word in (edge, (1 << 64) - 1, edge - 1) if 0 <= word < 1 << 64), 0]
    wanted = next(word for word in tried if word < edge)
    assert Draw._below(iter(tried), bound) == wanted % bound


def test_both_arm_orders_come_up() -> None:
    drawn = Counter(Draw(SEED, PLAN).arms(f"q{number}") for number in range(400))
    assert set(drawn) == {ABBA, BAAB}
    assert all(140 < count < 260 for count in drawn.values())


def test_a_sample_has_no_repeats_and_knows_its_limits() -> None:
    draw = Draw(SEED, PLAN)
    assert len(set(draw.sample("s", range(10), 6))) == 6
    assert draw.choice("c", "abc") in "abc"
    with pytest.raises(ValueError, match="11 wanted of 10"):
        draw.sample("s", range(10), 11)


@pytest.mark.parametrize("below", [0, -1, (1 << 64) + 1])
def test_a_bound_out_of_range_is_an_error(below: int) -> None:
    with pytest.raises(ValueError, match="bound"):
        Draw(SEED, PLAN).integer("x", below)


def test_seeds_are_256_bits_and_new() -> None:
    assert len(new_seed()) == 32
    assert new_seed() != new_seed()
    with pytest.raises(ValueError, match="32 bytes"):
        Draw(b"short", PLAN)
