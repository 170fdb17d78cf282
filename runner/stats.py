"""The statistics that verdicts rest on. Pure, standard library only, exact for the data given.

A pair is one quad of blocks (ABBA or BAAB); its value is the log-ratio of the two arms' rates. Nothing is assumed of
the noise but independence between pairs: the interval of the median is the range between two order statistics, whose
coverage follows from the binomial distribution alone (David and Nagaraja, *Order Statistics*, section 7.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import comb, exp, isfinite, log
from operator import add
from statistics import NormalDist, fmean, median
from typing import Literal

Outcome = Literal["FASTER", "SLOWER", "SAME", "UNRESOLVED"]

FAMILY_ERROR = 0.05
"""Error shared by an order's primary metrics (Bonferroni)."""
FLOOR_PAIRS = 6
"""Fewest A/A pairs that give a floor: their range covers the median with 96.9 %."""
DOCUMENTS = 20
"""Fewest documents that a quality verdict may rest on."""
MOST_DOCUMENTS = 1000
"""More would be measured for days and say no more; their binomial coefficients are beyond binary64."""
_LARGEST_POWER = 709
"""e to this is still a binary64 number."""
BEYOND = exp(_LARGEST_POWER)
"""What :func:`growth` gives for anything larger, so that two of these say nothing about each other."""
_IN_DOUBLES = 1000
"""Throws whose binomial coefficients all are binary64 numbers."""


def total(values: Iterable[float]) -> float:
    """The sum, one after the other in IEEE doubles.

    Python's own ``sum`` carries along what is lost from 3.12 on, and a verdict is the same wherever it is worked out.
    """
    return reduce(add, values, 0.0)


@dataclass(frozen=True)
class Interval:
    """Between two order statistics, both ends included."""

    low: float
    high: float
    coverage: float
    """Exact probability that the true median lies inside."""

    @property
    def half_width(self) -> float:
        """Half of high − low."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Comparison:
    """A verdict on pairs with what it rests on."""

    outcome: Outcome
    median: float
    interval: Interval


@dataclass(frozen=True)
class Tail:
    """How the boots of one arm spread, as ratios to the fastest boot's median."""

    slowest: float
    """Median rate of the slowest boot over that of the fastest."""
    slow_boots: tuple[str, ...]
    """Boots below the limit, slowest first: a slow mode that a median over boots hides."""
    worst_block: float
    """Slowest single block over the fastest boot's median."""


def log_ratio(candidate: Sequence[float], incumbent: Sequence[float]) -> float:
    """Mean log rate of the candidate's blocks minus that of the incumbent's: one pair's value.

    Raises ValueError for an arm without blocks or a rate that is no positive number.
    """
    if not candidate or not incumbent:
        raise ValueError("a pair needs blocks of both arms")
    _require_finite((*candidate, *incumbent))
    return fmean(map(log, candidate)) - fmean(map(log, incumbent))


def _require_finite(values: Iterable[float]) -> None:
    if not all(map(isfinite, values)):
        raise ValueError("a value is no finite number")


def full_coverage(pairs: int) -> float:
    """Coverage of the whole range of ``pairs`` values: 1 − 2^(1−n); six give 96.9 %."""
    return 1 - 2.0 ** (1 - pairs)


def supports(primaries: int, pairs: int) -> bool:
    """Whether ``pairs`` pairs carry ``primaries`` primary metrics: 2^(1−n) ≤ 0.05 / k."""
    return pairs >= 1 and primaries >= 1 and 2.0 ** (1 - pairs) <= FAMILY_ERROR / primaries


def _coin(count: int, heads: int) -> float:
    """Probability of so many heads of ``count`` throws."""
    ways = comb(count, heads)
    return ways * 0.5**count if count <= _IN_DOUBLES else ways / 2**count


@lru_cache(maxsize=256)
def interval_rank(count: int, coverage: float) -> tuple[int, float]:
    """The innermost rank k whose interval [x_(k), x_(n+1−k)] still covers ``coverage``, with its exact coverage.

    Where even the whole range covers less, k is 1 and the coverage says so.
    """
    if count < 1:
        raise ValueError("no values, no interval")
    below, best = 0.0, (1, full_coverage(count))
    for rank in range(1, count // 2 + 1):
        below += _coin(count, rank - 1)
        if rank > 1 and 1 - 2 * below < coverage:
            break
        best = (rank, 1 - 2 * below)
    return best


def median_interval(values: Sequence[float], coverage: float = 1.0) -> Interval:
    """Exact order-statistic interval of the median; the default takes the whole range, the widest there is.

    Raises ValueError where there is no value, or one that is no number: NaN has no place in an order.
    """
    _require_finite(values)
    ordered = sorted(values)
    rank, exact = interval_rank(len(ordered), coverage)
    return Interval(ordered[rank - 1], ordered[-rank], exact)


def compare(pairs: Sequence[float], margin: float) -> Comparison:
    """FASTER above +margin, SLOWER below −margin, SAME inside ±margin, else UNRESOLVED; the whole range decides."""
    interval = median_interval(pairs)
    outcome: Outcome = "UNRESOLVED"
    if interval.low > margin:
        outcome = "FASTER"
    elif interval.high < -margin:
        outcome = "SLOWER"
    elif -margin <= interval.low and interval.high <= margin:
        outcome = "SAME"
    return Comparison(outcome, median(pairs), interval)


def a_a_floor(pairs: Sequence[float]) -> float:
    """Half width of the interval of at least six A/A pairs: no margin may lie below it. Raises ValueError for fewer."""
    if len(pairs) < FLOOR_PAIRS:
        raise ValueError(f"an A/A floor needs {FLOOR_PAIRS} pairs, not {len(pairs)}")
    return median_interval(pairs).half_width


def floor_of_blocks(ratios: Sequence[float]) -> float:
    """The A/A floor from one ratio a quad of two single blocks of the incumbent, log(later) − log(earlier).

    A pair averages two blocks an arm: where single blocks vary by s², it varies by s²/2 + s²/2 = s², and the ratio of
    two single blocks by 2 s². Divided by the root of two their half width is that of A/A pairs, in which a seat's
    record and the margin are written (of noise without a variance a tenth below it). It is never below theirs where
    neighbours are alike: with a correlation r ≥ 0 from block to block a pair varies by s² (1 − (r + 2 r² − r³) / 2) and
    the ratio so divided by r² (1 − r) s² more; and a drift, which ABBA takes out of a pair, stays in the ratio. Without
    the root one run in nine would be UNRESOLVED for its floor alone where the margin is twice the seat's half width,
    instead of one in two hundred. What a pair's interval covers does not depend on it.
    Raises ValueError for fewer than six.
    """
    return a_a_floor(ratios) / 2**0.5


def worst_end(deltas: Sequence[float], coverage: float) -> Interval:
    """Interval of the median document delta (positive is worse); a gate compares its high end with the margin.

    Raises ValueError for fewer than 20 documents.
    """
    if len(deltas) < DOCUMENTS:
        raise ValueError(f"non-inferiority needs {DOCUMENTS} documents, not {len(deltas)}")
    return median_interval(deltas, coverage)


def mcnemar(lost: int, won: int) -> float:
    """Exact one-sided McNemar: the chance of at least ``lost`` losses among the discordant trials of two equal arms."""
    discordant = lost + won
    ways = sum(comb(discordant, count) for count in range(lost, discordant + 1))
    return ways * 0.5**discordant if discordant <= _IN_DOUBLES else ways / 2**discordant


def tail(rates_by_boot: Mapping[str, Sequence[float]], limit: float) -> Tail:
    """Slow-mode report: boots whose median rate is below ``limit`` times the fastest boot's.

    Raises ValueError where there is no rate at all.
    """
    medians = {boot: median(rates) for boot, rates in rates_by_boot.items() if rates}
    if not medians:
        raise ValueError("no rates, no tail report")
    fastest = max(medians.values())
    slow = sorted((value, boot) for boot, value in medians.items() if value < limit * fastest)
    worst = min(min(rates) for rates in rates_by_boot.values() if rates)
    return Tail(min(medians.values()) / fastest, tuple(boot for _, boot in slow), worst / fastest)


# Operating characteristics: what `runner plan` prints before any seat time.


@dataclass(frozen=True)
class Chances:
    """Probability of each outcome of :func:`compare` for normal noise."""

    faster: float
    slower: float
    same: float
    unresolved: float


def chances(pairs: int, margin: float, effect: float, sigma: float) -> Chances:
    """Exact, since the outcomes are statements about all pairs at once: FASTER has Φ((effect − margin)/σ)ⁿ.

    ``sigma`` is the standard deviation of one pair's log-ratio, ``effect`` its true value.
    """
    if sigma <= 0:
        raise ValueError("noise must be positive")
    noise = NormalDist(effect, sigma)
    faster = (1 - noise.cdf(margin)) ** pairs
    slower = noise.cdf(-margin) ** pairs
    same = max(noise.cdf(margin) - noise.cdf(-margin), 0.0) ** pairs
    return Chances(faster, slower, same, max(1 - faster - slower - same, 0.0))


def noninferiority_power(documents: int, margin: float, shift: float, sigma: float, coverage: float) -> float:
    """Probability that the worst end lies inside the margin for normal document deltas around ``shift``.

    The high end is x_(n+1−k), so the event is that at least n+1−k documents lie at or below the margin. Its complement
    at shift 0 is the gate's false-fail rate; its value at shift = margin the false-pass rate.
    """
    inside = NormalDist(shift, sigma).cdf(margin) if sigma > 0 else float(shift <= margin)
    rank, _ = interval_rank(documents, coverage)
    return sum(
        comb(documents, count) * inside**count * (1 - inside) ** (documents - count)
        for count in range(documents + 1 - rank, documents + 1)
    )


@lru_cache(maxsize=64)
def _expected_range(count: int) -> float:
    """Expected range of ``count`` standard normal values: ∫ 1 − Φⁿ − (1 − Φ)ⁿ, by the trapezoid rule."""
    normal, steps = NormalDist(), 2000
    width = 16 / steps
    cdfs = (normal.cdf(-8 + index * width) for index in range(steps + 1))
    return total(1 - value**count - (1 - value) ** count for value in cdfs) * width


def half_width_within(limit: float, sigma: float, count: int) -> float:
    """Probability that half the range of ``count`` normal values of this deviation is at most ``limit``.

    n ∫ φ(x) (Φ(x + range) − Φ(x))ⁿ⁻¹, by the trapezoid rule (David and Nagaraja, section 2.3).
    """
    normal, steps, width = NormalDist(), 2000, 2 * limit / sigma
    step = 16 / steps
    points = (-8 + index * step for index in range(steps + 1))
    inside = total(normal.pdf(x) * (normal.cdf(x + width) - normal.cdf(x)) ** (count - 1) for x in points)
    return min(count * inside * step, 1.0)


def sigma_of_half_width(half_width: float, pairs: int = FLOOR_PAIRS) -> float:
    """Standard deviation of a pair that would give this expected A/A half width for normal noise."""
    return 2 * half_width / _expected_range(pairs)


def growth(nats: float) -> float:
    """The factor that a natural-log ratio is; :data:`BEYOND` where binary64 ends, which no limit lets pass."""
    return exp(min(nats, _LARGEST_POWER))


def percent(log_value: float) -> float:
    """A log-ratio as per cent: 0.01 → 1.005."""
    return (exp(log_value) - 1) * 100
