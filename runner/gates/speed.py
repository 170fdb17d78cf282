"""``speed``: is the candidate faster, by the exact interval of the median over drawn quads of blocks?"""

from __future__ import annotations

from typing import Literal

from runner.gates.base import GateInput, GateParameters, Limit
from runner.gates.blocks import (
    Block,
    Pair,
    Pairing,
    blocks_of,
    candidate_rates,
    clock_faults,
    one_variant,
    other_texts,
    pairs_of,
    rate,
    text_share,
    without_unmeasured,
)
from runner.gates.common import Decision, Reading, decide, figure, invalid, verdict
from runner.model.sample import SpeedMeasure
from runner.model.verdict import Figure, Status, Verdict
from runner.stats import FLOOR_PAIRS, Comparison, Tail, compare, floor_of_blocks, log_ratio, tail

NAME = "speed"
VERSION = 1

_PAIRED: dict[Pairing, str] = {"block": "", "boot": " between boots"}
"""What a verdict says of its pairing, since those of different pairings are never compared."""
TEXT_SHARE = 0.9
"""Fewer texts alike and the candidate is not doing the incumbent's work while it is timed. Right kernels part at near
ties alone: 101 of 101 texts were alike in six runs of the small seat."""
POOL_AGREEMENT = 0.01
"""How far the KV pools of two boots may differ: a profile of free memory is not the same to the block."""
DISTURBED_SHARE = 0.25
"""More disturbed blocks than this and nothing was measured."""


class Parameters(GateParameters):
    """What faster means; sealed before the run."""

    metric: Literal["decode-rate", "aggregate-rate"] = "decode-rate"
    """tok/s of one stream after its first token (geometric mean over languages), or of all streams together."""
    margin: Limit
    """Natural-log ratio that the whole interval must clear; not below the seat's A/A half width."""
    require: Literal["faster", "not-slower"] = "faster"
    """``not-slower``: the low end must not lie below −margin."""
    a_a_half_width: Limit | None = None
    """The seat's recorded A/A floor; without a record it is taken from the incumbent's two blocks of each quad."""
    boot_to_boot: Limit = "0.05"
    """The seat's spread between boots: how much faster an incumbent-only boot may be (natural-log ratio)."""
    pairing: Pairing = "block"
    """Whether the four blocks of a quad share one boot, or have one each; figures of one say nothing of the other."""
    alone: Literal["bounded", "discounted"] = "bounded"
    """``discounted``: by how much the incumbent alone was faster also comes off the gain, and the rest must clear the
    margin. Where boots differ by as much as the margin, slowing the incumbent would otherwise look like a gain."""
    texts: Literal["any", "mostly", "equal"] = "any"
    """``equal``: both arms must have written the same ids. Where a draft model speculates the text sets the rate, so a
    win on another text is no win. ``mostly``: at least nine texts of ten, so that what is timed is what is right."""
    text_share: Limit | None = None
    """Instead of nine of ten, where right kernels round to fewer digits and part more often: the seat's share."""
    broken_off: int | None = None
    """Most boots with timed blocks that may have been broken off: whoever stops a run whenever a quad looks bad, and
    resumes it, picks its quads."""
    short: Literal["invalid", "unresolved"] = "invalid"
    """``unresolved``: a machine that is lent for minutes may not see every quad. Those that were measured whole are
    compared, and the rest are lost pairs: such a run is never faster, but it may be slower."""
    tail: Limit | None = None
    """Least median rate of the slowest candidate boot over the fastest; below it FAIL. Without it only reported."""


def judge(given: GateInput) -> Verdict:
    """FASTER is PASS, SLOWER and SAME are FAIL; a floor above the margin or lost pairs leave it UNRESOLVED."""
    lost = 0
    if given.parameters.get("short") == "unresolved":
        given, lost = without_unmeasured(given)

    def then(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput) -> Decision:
        return _decide(wanted, readings, given, lost)

    return verdict(NAME, VERSION, decide(Parameters, (SpeedMeasure,), given, then))


def _decide(wanted: Parameters, readings: tuple[Reading, ...], given: GateInput, lost: int) -> Decision:
    blocks = blocks_of(readings)
    disturbed = _disturbed_share(given)
    if disturbed > DISTURBED_SHARE:
        return invalid(f"{disturbed:.0%} of the blocks were disturbed, at most {DISTURBED_SHARE:.0%}")
    pairs, faults = pairs_of(blocks, wanted.metric, wanted.pairing)
    faults += _broken_off(wanted, blocks, given)
    if wanted.pairing == "boot":
        faults += _other_pools(blocks, given)
    if wanted.texts == "equal":
        faults += other_texts(blocks)
    if faults or not pairs:
        return invalid(*(faults or ["no quad of blocks"]))
    alike, written = text_share(blocks)
    if wanted.texts == "mostly" and alike < float(wanted.text_share or TEXT_SHARE) * written:
        return Decision(Status.FAIL, (f"the arms wrote another text after {written - alike} of {written} prompts",), ())
    whole = [pair for pair in pairs if not pair.disturbed]
    if not whole:
        return invalid("every quad has a disturbed block")
    clocks = clock_faults(blocks)
    if clocks:
        return invalid(*clocks)
    control = _control(wanted, blocks, readings, given, lost)
    if isinstance(control, Decision):
        return control
    comparison = compare([pair.value for pair in whole], float(wanted.margin))
    floor = float(wanted.a_a_half_width) if wanted.a_a_half_width is not None else _floor(whole)
    slow = tail(candidate_rates(blocks, wanted.metric), float(wanted.tail or 0))
    figures = _figures(wanted, comparison, floor, slow, len(pairs))
    doubts = [*_lost(lost + len(pairs) - len(whole)), *_floor_doubts(wanted, floor)]
    if control is not None:
        left = comparison.median - max(control, 0.0)
        figures += (
            figure("incumbent alone over shared", control, unit="log-ratio", limit=f"<= {wanted.boot_to_boot}"),
        )
        if wanted.alone == "discounted":
            figures += (figure("log-ratio less the incumbent's loss", left, limit=f"clears {wanted.margin}"),)
            doubts += _discount_doubts(wanted, comparison, left)
    if lost and one_variant(blocks):
        return Decision(Status.UNRESOLVED, (f"equal arms: {_lost(lost)[0]}",), figures)
    return _answer(wanted, comparison, slow=slow, doubts=doubts, equal=one_variant(blocks), figures=figures)


def _clears(wanted: Parameters, gain: float) -> bool:
    margin = float(wanted.margin)
    return gain > margin if wanted.require == "faster" else gain >= -margin


def _lost(pairs: int) -> list[str]:
    return [f"{pairs} pairs fewer than planned"] if pairs else []


def _floor_doubts(wanted: Parameters, floor: float | None) -> list[str]:
    if floor is None:
        return [f"no A/A floor: the seat has no record and fewer than {FLOOR_PAIRS} quads are whole"]
    if floor > float(wanted.margin):
        return [f"the A/A floor {floor:.4g} lies above the margin {wanted.margin}"]
    return []


def _discount_doubts(wanted: Parameters, comparison: Comparison, left: float) -> list[str]:
    """None where the gain itself does not clear the margin: then there is nothing to take off."""
    if not _clears(wanted, comparison.interval.low) or _clears(wanted, left):
        return []
    return [f"less what the incumbent loses beside the candidate, {left:+.4f} is left and does not clear the margin"]


def _answer(
    wanted: Parameters,
    comparison: Comparison,
    *,
    slow: Tail,
    doubts: list[str],
    equal: bool,
    figures: tuple[Figure, ...],
) -> Decision:
    interval = f"{comparison.interval.low:+.4f} .. {comparison.interval.high:+.4f}"
    outcome = f"{comparison.outcome}{_PAIRED[wanted.pairing]}"
    reason = f"{outcome}: log-ratio {comparison.median:+.4f}, interval {interval}, margin {wanted.margin}"
    if equal:
        status = {"SAME": Status.PASS, "UNRESOLVED": Status.UNRESOLVED}.get(comparison.outcome, Status.FAIL)
        return Decision(status, (f"equal arms: {reason}",), figures)
    if slow.slow_boots:
        return Decision(
            Status.FAIL, (f"slow boots: {', '.join(slow.slow_boots)} ({slow.slowest:.3f})", reason), figures
        )
    if comparison.outcome == "SLOWER":
        return Decision(Status.FAIL, (reason,), figures)
    if doubts:
        return Decision(Status.UNRESOLVED, (*doubts, reason), figures)
    if _clears(wanted, comparison.interval.low):
        return Decision(Status.PASS, (reason,), figures)
    status = Status.FAIL if comparison.outcome == "SAME" else Status.UNRESOLVED
    return Decision(status, (reason,), figures)


def _disturbed_share(given: GateInput) -> float:
    """Share of disturbed samples among all blocks of quads, repeats included."""
    drawn = {window.id for window in given.windows if window.arm == "drawn"}
    blocks = [sample for sample in given.samples if sample.window in drawn]
    return sum(bool(sample.disturbed) for sample in blocks) / len(blocks) if blocks else 0.0


def _broken_off(wanted: Parameters, blocks: list[Block], given: GateInput) -> list[str]:
    timed = {block.reading.window.boot for block in blocks}
    found = [boot.id for boot in given.boots if boot.planned in timed and boot.ended == "aborted"]
    if wanted.broken_off is None or len(found) <= wanted.broken_off:
        return []
    return [f"boots with timed blocks were broken off: {', '.join(found)}; at most {wanted.broken_off} may be"]


def _other_pools(blocks: list[Block], given: GateInput) -> list[str]:
    """Arms that do not share a boot must have had the same room: a kernel that starves the KV pool works on less."""
    sizes = {boot.id: boot.kv_tokens for boot in given.boots}
    pools = {block.reading.sample.boot: sizes[block.reading.sample.boot] for block in blocks}
    if not pools or min(pools.values()) >= (1 - POOL_AGREEMENT) * max(pools.values()):
        return []
    small, large = min(pools, key=pools.__getitem__), max(pools, key=pools.__getitem__)
    return [f"KV pools of other sizes: {small} has {pools[small]} tokens, {large} has {pools[large]}"]


def _floor(pairs: list[Pair]) -> float | None:
    """The A/A floor of this very run, from the incumbent's two blocks of each quad."""
    if len(pairs) < FLOOR_PAIRS:
        return None
    return floor_of_blocks([pair.incumbent_ratio for pair in pairs])


def _control(
    wanted: Parameters, blocks: list[Block], readings: tuple[Reading, ...], given: GateInput, lost: int
) -> float | Decision | None:
    """How much faster the incumbent alone is than beside the candidate, as a natural-log ratio; None in an A/A plan.

    Beyond the seat's spread between boots the shared process slowed it down, and nothing was measured.
    """
    if one_variant(blocks):
        return None
    shared = [block for block in blocks if not block.candidate]
    if len({block.reading.sample.boot for block in blocks}) < 2 and not lost:  # where quads are lost nothing is decided
        return invalid("at least two shared boots are needed")
    roles = {boot.id: boot.role for boot in given.planned_boots}
    alone = [rate(one, wanted.metric) for one in readings if roles.get(one.window.boot) == "incumbent-only"]
    if not alone or not all(value > 0 for value in alone):
        return invalid("no incumbent-only boot to compare the shared incumbent with")
    ahead = log_ratio(alone, [block.rate(wanted.metric) for block in shared])
    if ahead > float(wanted.boot_to_boot):
        return invalid(
            f"the incumbent alone is faster than beside the candidate by {ahead:+.4f}, the seat's spread between boots "
            f"is {wanted.boot_to_boot}"
        )
    return ahead


def _figures(
    wanted: Parameters, comparison: Comparison, floor: float | None, slow: Tail, planned: int
) -> tuple[Figure, ...]:
    interval = comparison.interval
    found = [
        figure("log-ratio, median", comparison.median),
        figure("interval, low", interval.low, limit=f"> {wanted.margin}"),
        figure("interval, high", interval.high),
        figure("coverage", interval.coverage),
        figure("pairs planned", planned),
        figure("slowest candidate boot over fastest", slow.slowest, limit=f">= {wanted.tail}" if wanted.tail else ""),
        figure("slowest candidate block over fastest boot", slow.worst_block),
    ]
    return tuple(found) + (() if floor is None else (figure("A/A floor", floor, limit=f"<= {wanted.margin}"),))
