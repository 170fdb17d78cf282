"""Coverage, power and error rates by simulation: a statistic that never decides, or always does, fails here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import stats

SESSIONS = 40_000
Noise = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda source, shape: source.normal(0, 0.02, shape),
    "heavy-tailed": lambda source, shape: source.standard_t(2, shape) * 0.02,
    # One session in four has a slow mode; shifted so that the median is 0, which is all the interval speaks of.
    "skewed": lambda source, shape: source.exponential(0.02, shape) - 0.02 * math.log(2),
}
Compare = Callable[[Sequence[float], float], stats.Comparison]


def undecided(compare: Compare, noise: Noise, pairs: int) -> float:
    """Share of sessions without a true difference, at margin 0, in which nothing is claimed."""
    sessions = noise(np.random.default_rng(pairs), (SESSIONS, pairs)).tolist()
    return sum(compare(session, 0.0).outcome not in ("FASTER", "SLOWER") for session in sessions) / SESSIONS


def power(compare: Compare) -> float:
    """Share of sessions found FASTER with a true effect of margin + 2 sigma and eight pairs."""
    margin, sigma = 0.03, 0.02
    sessions = np.random.default_rng(8).normal(margin + 2 * sigma, sigma, (SESSIONS, 8)).tolist()
    return sum(compare(session, margin).outcome == "FASTER" for session in sessions) / SESSIONS


@pytest.mark.parametrize("pairs", range(5, 10))
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_coverage_is_exact(noise: Noise, pairs: int) -> None:
    assert abs(undecided(stats.compare, noise, pairs) - stats.full_coverage(pairs)) < 0.005


def test_power_at_margin_plus_two_sigma() -> None:
    assert power(stats.compare) >= 0.80


def test_a_function_that_never_decides_fails_both() -> None:
    def never(pairs: Sequence[float], margin: float) -> stats.Comparison:
        return stats.Comparison("UNRESOLVED", 0.0, stats.median_interval(pairs))

    assert abs(undecided(never, NOISES["normal"], 5) - stats.full_coverage(5)) > 0.005
    assert power(never) < 0.80


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        ([0.06] * 6, "FASTER"),
        ([0.06] * 5 + [0.05], "UNRESOLVED"),
        ([-0.06] * 6, "SLOWER"),
        ([-0.05, 0.05, 0.0, 0.01, 0.02, 0.0], "SAME"),
        ([-0.06, 0.0, 0.0, 0.0, 0.0, 0.0], "UNRESOLVED"),
    ],
)
def test_outcomes_against_a_margin(pairs: list[float], outcome: str) -> None:
    assert stats.compare(pairs, 0.05).outcome == outcome


def test_log_ratio_is_the_difference_of_mean_logs() -> None:
    assert stats.log_ratio([200.0, 50.0], [10.0, 10.0]) == pytest.approx(math.log(10))
    for arms in (([], [1.0]), ([1.0], []), ([0.0], [1.0])):
        with pytest.raises(ValueError):
            stats.log_ratio(*arms)


def test_pairs_carry_their_share_of_primaries() -> None:
    fewest = {k: next(n for n in range(1, 20) if stats.supports(k, n)) for k in (1, 2, 3, 4)}
    assert fewest == {1: 6, 2: 7, 3: 7, 4: 8}
    assert not stats.supports(0, 6)


@given(st.integers(1, 60), st.floats(0.5, 0.999))
def test_interval_rank_is_the_innermost_that_covers(count: int, coverage: float) -> None:
    rank, exact = stats.interval_rank(count, coverage)

    def covered(k: int) -> float:
        return 1.0 - 2.0 * sum(math.comb(count, below) for below in range(k)) * 0.5**count

    assert exact == pytest.approx(covered(rank)) or count == 1
    assert rank == 1 or exact >= coverage
    if 2 * (rank + 1) <= count:
        assert covered(rank + 1) < coverage


@given(st.lists(st.floats(-1, 1), min_size=20, max_size=40), st.floats(-1, 1))
def test_worst_end_moves_with_the_documents(deltas: list[float], shift: float) -> None:
    here = stats.worst_end(deltas, 0.95)
    there = stats.worst_end([delta + shift for delta in deltas], 0.95)
    assert there.high == pytest.approx(here.high + shift, abs=1e-9)
    assert here.coverage >= 0.95
    assert here.low <= sorted(deltas)[len(deltas) // 2] <= here.high


def test_too_few_documents_or_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="20 documents"):
        stats.worst_end([0.0] * 19, 0.95)
    with pytest.raises(ValueError, match="6 pairs"):
        stats.a_a_floor([0.0] * 5)
    with pytest.raises(ValueError, match="no values"):
        stats.median_interval([])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", range(7))
def test_what_is_no_number_has_no_place_in_an_order(value: float, place: int) -> None:
    """Sorted among others, NaN stands where it stood before: one at the end left the low end of a range alone."""
    values = [0.06] * 6
    values.insert(place, value)
    for judged in (lambda: stats.compare(values, 0.05), lambda: stats.a_a_floor(values)):
        with pytest.raises(ValueError, match="no finite number"):
            judged()
    with pytest.raises(ValueError, match="no finite number"):
        stats.log_ratio([1.0, value], [1.0])
    with pytest.raises(ValueError, match="no finite number"):
        stats.worst_end([*values, *[0.0] * 20], 0.95)


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, 0.05, -0.05])
def test_equal_pairs_inside_the_margin_are_the_same_however_small(value: float) -> None:
    compared = stats.compare([value] * 6, 0.05)
    assert (compared.outcome, compared.median, compared.interval.half_width) == ("SAME", value, 0.0)


def test_a_tie_with_the_margin_clears_nothing() -> None:
    assert stats.compare([0.05, 0.06, 0.06, 0.06, 0.06, 0.06], 0.05).outcome == "UNRESOLVED"
    assert stats.compare([0.05000000000000001] * 6, 0.05).outcome == "FASTER"


def test_floor_is_half_the_range_of_six_pairs() -> None:
    assert stats.a_a_floor([-0.02, 0.0, 0.01, 0.0, 0.03, 0.01]) == pytest.approx(0.025)


@pytest.mark.parametrize("pairs", [6, 8])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_the_floor_of_a_run_is_that_of_equal_arms(noise: Noise, pairs: int) -> None:
    """Half widths of A/A quads, and of the incumbent's own two blocks in as many quads, in the middle of all sessions.

    Of noise so heavy-tailed that it has no variance, two blocks' mean is hardly calmer than one.
    """
    blocks = noise(np.random.default_rng(6), (SESSIONS // 4, pairs * 4)).reshape(-1, pairs, 4)
    quads = (blocks[:, :, 1:3].mean(2) - blocks[:, :, ::3].mean(2)).tolist()
    recorded = [stats.a_a_floor(session) for session in quads]
    own = [stats.floor_of_blocks(session) for session in (blocks[:, :, 2] - blocks[:, :, 1]).tolist()]
    assert np.median(own) == pytest.approx(np.median(recorded), rel=0.12)


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.8])
@pytest.mark.parametrize("candidate", [(0, 3), (1, 2)])
def test_neighbours_that_are_alike_make_no_floor_too_narrow(alike: float, candidate: tuple[int, int]) -> None:
    """Variances from the covariance of four blocks, both orders taken together as they are drawn."""
    covariance = alike ** np.abs(np.subtract.outer(range(4), range(4)))
    pair = np.where(np.isin(range(4), candidate), 0.5, -0.5)
    ratios = [np.array([-1, 0, 0, 1]) / 2**0.5, np.array([0, -1, 1, 0]) / 2**0.5]
    own = sum(ratio @ covariance @ ratio for ratio in ratios) / 2
    assert pair @ covariance @ pair + alike**2 * (1 - alike) == pytest.approx(own)


@pytest.mark.parametrize("pairs", [6, 8])
def test_how_often_a_floor_lies_inside_the_margin(pairs: int) -> None:
    sessions = np.random.default_rng(9).normal(0, 0.02, (SESSIONS, pairs)).tolist()
    for limit in (0.02, 0.0254, 0.05):
        seen = sum(stats.a_a_floor(session) <= limit for session in sessions) / SESSIONS
        assert abs(stats.half_width_within(limit, 0.02, pairs) - seen) < 0.01


@pytest.mark.parametrize(
    ("lost", "won", "chance"), [(0, 0, 1.0), (5, 0, 1 / 32), (1, 1, 0.75), (0, 3, 1.0), (3, 1, 5 / 16)]
)
def test_mcnemar_counts_binomial_tails(lost: int, won: int, chance: float) -> None:
    assert stats.mcnemar(lost, won) == pytest.approx(chance)


@pytest.mark.parametrize("slow", [0.85, 0.7])
def test_one_boot_in_four_in_a_slow_mode_shows(slow: float) -> None:
    rates = {"a": [100.0, 101.0], "b": [99.0, 100.0], "c": [100.0 * slow, 101.0 * slow], "d": [100.0, 100.0]}
    report = stats.tail(rates, 0.9)
    assert report.slow_boots == ("c",)
    assert report.slowest == pytest.approx(slow)
    assert stats.tail({name: rates[name] for name in "abd"}, 0.9).slow_boots == ()
    with pytest.raises(ValueError):
        stats.tail({}, 0.9)


@pytest.mark.parametrize(("effect", "margin"), [(0.0, 0.0), (0.07, 0.03), (0.0, 0.03), (0.03, 0.03)])
def test_chances_agree_with_simulation(effect: float, margin: float) -> None:
    sessions = np.random.default_rng(3).normal(effect, 0.02, (SESSIONS, 6)).tolist()
    seen = [str(stats.compare(session, margin).outcome) for session in sessions]
    told = stats.chances(6, margin, effect, 0.02)
    for name in ("faster", "slower", "same", "unresolved"):
        assert abs(getattr(told, name) - seen.count(name.upper()) / SESSIONS) < 0.01
    assert told.faster + told.slower + told.same + told.unresolved == pytest.approx(1)


def test_false_pass_at_the_margin_is_two_to_the_minus_n() -> None:
    assert stats.chances(6, 0.03, 0.03, 0.02).faster == pytest.approx(2**-6)


@pytest.mark.parametrize("shift", [0.0, 0.01, 0.02])
def test_noninferiority_power_agrees_with_simulation(shift: float) -> None:
    sessions = np.random.default_rng(4).normal(shift, 0.03, (10_000, 24)).tolist()
    passed = sum(stats.worst_end(session, 0.95).high <= 0.02 for session in sessions) / len(sessions)
    assert abs(stats.noninferiority_power(24, 0.02, shift, 0.03, 0.95) - passed) < 0.015
    assert stats.noninferiority_power(24, 0.02, 0.0, 0.0, 0.95) == 1.0


def test_sigma_of_a_half_width_inverts_the_expected_range() -> None:
    half_widths = [stats.a_a_floor(row) for row in np.random.default_rng(5).normal(0, 0.02, (SESSIONS, 6)).tolist()]
    assert stats.sigma_of_half_width(float(np.mean(half_widths))) == pytest.approx(0.02, rel=0.01)
    assert stats.percent(math.log(1.5)) == pytest.approx(50)


def test_a_total_is_the_same_under_every_python() -> None:
    """``sum`` gives 1.0 here from Python 3.12 on, and 0.0 before."""
    assert stats.total([1e16, 1.0, -1e16]) == 0.0


@pytest.mark.parametrize("count", [1000, 1001, 2500])
def test_many_values_have_an_interval_too(count: int) -> None:
    rank, coverage = stats.interval_rank(count, 0.95)
    width = (count / 2 - rank) / (count**0.5 / 2)
    assert width == pytest.approx(1.96, abs=0.1)
    assert 0.95 <= coverage < 0.96
    assert stats.mcnemar(count // 2, count - count // 2) == pytest.approx(0.5, abs=0.03)
