"""Blocks of the speed gate and the quads they form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Literal

from runner.gates.base import GateInput
from runner.gates.common import Reading
from runner.gates.engagement import incumbent_of
from runner.model.sample import SpeedMeasure
from runner.stats import log_ratio

CLOCK_AGREEMENT = 0.02
"""How far one stream's decode time at the client may lie from the engine's own, over all blocks of an arm."""
_ORDERS = ("ABBA", "BAAB")


@dataclass(frozen=True)
class Block:
    """One block of a quad."""

    reading: Reading
    quad: str
    position: int
    candidate: bool

    def rate(self, metric: str) -> float:
        """tok/s by the named metric."""
        return rate(self.reading, metric)

    @property
    def measure(self) -> SpeedMeasure:
        """What was measured."""
        return speed_of(self.reading)


@dataclass(frozen=True)
class Pair:
    """One quad's value."""

    value: float
    """Log-ratio candidate over incumbent."""
    incumbent_ratio: float
    """Log-ratio of the incumbent's two blocks, later over earlier."""
    disturbed: bool


def speed_of(reading: Reading) -> SpeedMeasure:
    """The reading's measure; only speed readings come here."""
    measure = reading.sample.measure
    assert isinstance(measure, SpeedMeasure), "the gate's common checks let only speed readings through"
    return measure


def rate(reading: Reading, metric: str) -> float:
    """tok/s by the named metric."""
    measure = speed_of(reading)
    return float(measure.decode_rate if metric == "decode-rate" else measure.aggregate_rate)


def blocks_of(readings: Iterable[Reading]) -> list[Block]:
    """The drawn blocks. A block is the candidate's where the variant that was on is not the incumbent's.

    Where both arms are one variant (A/A), the outer blocks of a quad stand for the candidate: ABBA with equal arms.
    """
    drawn = [one for one in readings if one.window.arm == "drawn"]
    same = len({one.sample.variant for one in drawn}) == 1
    blocks = []
    for one in drawn:
        position = one.window.arguments.get("block")
        place = position if isinstance(position, int) else -1
        candidate = place in (0, 3) if same else one.sample.variant != incumbent_of(one.window)
        blocks.append(Block(one, str(one.window.arguments.get("quad", "")), place, candidate))
    return blocks


def without_unmeasured(given: GateInput) -> tuple[GateInput, int]:
    """The input without the quads of which a block has no sample, and how many these are.

    Where no quad is whole nothing is left out: then nothing was measured, and the gate says what is missing.
    """
    measured = {sample.window for sample in given.samples}
    quads = {window.id: str(window.arguments.get("quad", "")) for window in given.windows if window.arm == "drawn"}
    torn = {quad for window, quad in quads.items() if window not in measured}
    if not torn or torn == set(quads.values()):
        return given, 0
    left = {window for window, quad in quads.items() if quad in torn}
    return (
        given.model_copy(
            update={
                "windows": tuple(window for window in given.windows if window.id not in left),
                "samples": tuple(sample for sample in given.samples if sample.window not in left),
            }
        ),
        len(torn),
    )


def one_variant(blocks: Iterable[Block]) -> bool:
    """Whether both arms are the same variant (an A/A plan)."""
    return len({block.reading.sample.variant for block in blocks}) == 1


Pairing = Literal["block", "boot"]
"""Whether the four blocks of a quad share one boot, or have one each."""


def pairs_of(blocks: Sequence[Block], metric: str, pairing: Pairing = "block") -> tuple[list[Pair], list[str]]:
    """One pair for each quad, and what keeps quads from being pairs."""
    faults: list[str] = []
    quads: dict[str, list[Block]] = {}
    for block in blocks:
        quads.setdefault(block.quad, []).append(block)
    pairs = []
    for name, members in quads.items():
        found = sorted(members, key=lambda block: block.position)
        fault = _quad_fault(found, metric, pairing)
        if fault:
            faults.append(f"quad {name}: {fault}")
        else:
            pairs.append(_pair(found, metric))
    return pairs, faults


def _quad_fault(blocks: Sequence[Block], metric: str, pairing: Pairing) -> str:
    if [block.position for block in blocks] != [0, 1, 2, 3]:
        return f"blocks {[block.position for block in blocks]}, expected four in order"
    order = "".join("B" if block.candidate else "A" for block in blocks)
    if order not in _ORDERS:
        return f"arms in order {order}, expected ABBA or BAAB"
    boots = len({block.reading.sample.boot for block in blocks})
    if pairing == "block" and boots != 1:
        return "its blocks come from several boots"
    if pairing == "boot" and boots != len(blocks):
        return "two of its blocks share a boot"
    prompts = [frozenset(text.prompt_digest for text in block.measure.texts) for block in blocks]
    if prompts[0] != prompts[1] or prompts[2] != prompts[3]:
        return "its blocks had other prompts"
    if len({tuple(sorted((text.id, text.completion_tokens) for text in block.measure.texts)) for block in blocks}) != 1:
        return "its blocks generated other numbers of tokens"
    if not all(block.rate(metric) > 0 for block in blocks):
        return "a block has no rate"
    return ""


def other_texts(blocks: Iterable[Block]) -> list[str]:
    """Texts of a quad that not all of its blocks wrote alike, or of which nobody knows."""
    return [
        f"quad {quad}: {name} is another text in another block, which is another workload"
        for (quad, name, _), written in _written(blocks).items()
        if len(digests := set(written)) > 1 or None in digests
    ]


def text_share(blocks: Iterable[Block]) -> tuple[int, int]:
    """Prompts after which every block wrote one text, and all prompts. A text that nobody knows is another one."""
    groups = _written(blocks).values()
    return sum(len(digests := set(one)) == 1 and None not in digests for one in groups), len(groups)


def _written(blocks: Iterable[Block]) -> dict[tuple[str, str, str], list[str | None]]:
    """By quad, name and prompt of a text: the digests of what the blocks wrote."""
    written: dict[tuple[str, str, str], list[str | None]] = {}
    for block in blocks:
        for text in block.measure.texts:
            key = (block.quad, text.id, text.prompt_digest)
            written.setdefault(key, []).append(text.output_digest)
    return written


def _pair(blocks: Sequence[Block], metric: str) -> Pair:
    candidate = [block.rate(metric) for block in blocks if block.candidate]
    incumbent = [block.rate(metric) for block in blocks if not block.candidate]
    return Pair(
        value=log_ratio(candidate, incumbent),
        incumbent_ratio=log(incumbent[1]) - log(incumbent[0]),
        disturbed=any(block.reading.sample.disturbed for block in blocks),
    )


def candidate_rates(blocks: Iterable[Block], metric: str) -> dict[str, list[float]]:
    """Rates of the candidate's blocks by boot."""
    rates: dict[str, list[float]] = {}
    for block in blocks:
        if block.candidate:
            rates.setdefault(block.reading.sample.boot, []).append(block.rate(metric))
    return rates


def clock_faults(blocks: Sequence[Block]) -> list[str]:
    """Arms whose decode time the client and the engine's ``/metrics`` tell differently.

    Only of single streams, and of blocks in which nothing kept the client from its socket.
    """
    faults = []
    calm = [block for block in blocks if not block.reading.sample.disturbed]
    for variant in sorted({block.reading.sample.variant for block in calm}):
        measures = [block.measure for block in calm if block.reading.sample.variant == variant]
        client = sum(text.decode_ns for measure in measures for text in measure.texts)
        server = sum(measure.server_decode_ns for measure in measures)
        single = all(measure.streams == 1 for measure in measures)
        if single and abs(client - server) > CLOCK_AGREEMENT * client:
            faults.append(f"{variant}: decode took {client} ns at the client and {server} ns by /metrics")
    return faults
