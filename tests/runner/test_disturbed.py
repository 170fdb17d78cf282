"""Blocks on a busy machine: kept, counted, measured again as whole quads, and in the end given up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.gates import speed
from runner.gates.base import GateInput
from runner.model.evidence import Evidence, MachineState
from runner.model.plan import PlannedWindow
from runner.model.sample import Sample, SpeedMeasure
from runner.model.verdict import Status
from runner.paths import source_root
from runner.session import open_run
from runner.steps import boots, reduce
from runner.steps.evidence import digests, keep
from runner.steps.seal import seal
from runner.steps.state import Run, Silent
from serve.instruments.base import evidence_digest
from tests.runner.flow_orders import gate_order, write_order


@pytest.fixture
def run(home: Path) -> Run:
    return seal(open_run(write_order(home, gate_order()), progress=Silent()))


def evidence(window: PlannedWindow, *, busy: int, foreign: int | None) -> Evidence:
    """A block of one second on one processor, busy for ``busy`` ticks of a hundred, ``foreign`` of them by others seen.

    What the candidate hides is as busy, and nobody is seen; None is evidence from before foreign time was kept.
    """
    states = tuple(
        MachineState(
            at_ns=at,
            load1_milli=0,
            steal_ticks=0,
            busy_ticks=ticks,
            own_ticks=0,
            foreign_ticks=None if foreign is None else min(ticks, foreign),
        )
        for at, ticks in ((0, 0), (10**9, busy))
    )
    limits = {"steal_fraction": "0.1", "foreign_fraction": "0.2"}
    return Evidence(
        window=window.id,
        boot="shared-a-00000001",
        instrument=window.instrument,
        variant="incumbent",
        opened_at="2026-11-30T00:00:00Z",
        opened_ns=0,
        closed_ns=10**9,
        machine=states,
        facts={"limits": limits, "processors": 1, "ticks_per_second": 100},
    )


def measured(
    monkeypatch: pytest.MonkeyPatch, run: Run, busy: list[int], foreign: int | None = 100
) -> tuple[list[str], Run]:
    """The first quad measured with these busy ticks block by block; the windows in the order of measuring."""
    block = next(block for block in boots.blocks_of(run, run.plan.boots[1]) if len(block) == 4)
    order: list[str] = []

    def measure(at: Run, _boot: object, window: PlannedWindow) -> None:
        order.append(window.id)
        keep(at, evidence(window, busy=busy.pop(0) if busy else 0, foreign=foreign))

    def read(_run: Run, window: PlannedWindow, found: list[Evidence]) -> Sample:
        own = found[0]
        fraction = own.machine[1].busy_ticks / 100
        rate = SpeedMeasure(
            streams=1, texts=(), decode_rate="1", aggregate_rate="1", server_tokens=1, server_decode_ns=1
        )
        return Sample(
            window=window.id,
            boot=own.boot,
            instrument=own.instrument,
            variant=own.variant,
            evidence=(evidence_digest(own),),
            measure=rate,
            engagement=(),
            disturbed=("foreign fraction",) if fraction > 0.2 else (),
        )

    monkeypatch.setattr(boots, "_measure", measure)
    monkeypatch.setattr(reduce, "_reduced", read)
    boots._measure_block(run, None, block)  # type: ignore[arg-type]  # no boot is needed for made-up evidence
    return order, reduce.reduce(run)


def test_a_disturbed_quad_is_measured_again_as_a_whole(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order, after = measured(monkeypatch, run, [0, 90])
    quad = [f"q1-b{block}" for block in (1, 2, 3, 4)]
    assert order == quad + quad
    found = [(sample.window, bool(sample.disturbed)) for sample in after.outcome.samples]
    assert found == [("q1-b1", False), ("q1-b2", True), ("q1-b2", False), ("q1-b3", False), ("q1-b4", False)]
    assert sum("evidence/disturbed/" in name for name in digests(run)) == 4
    assert len(run.journal.of("window-disturbed")) == 4


def test_a_calm_quad_is_measured_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order, after = measured(monkeypatch, run, [0, 19, 20, 5])
    assert len(order) == len(after.outcome.samples) == 4


def test_a_busy_machine_is_given_up_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order, after = measured(monkeypatch, run, [90] * 100)
    assert len(order) == 4 + 4  # 24 blocks: a second quad set aside would be more than one block in four
    assert all(sample.disturbed for sample in after.outcome.samples)


def test_one_block_is_not_measured_again_for_ever(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order, after = measured(monkeypatch, run, [0, 90, 0, 0] * 10)
    assert len(order) == 4 * (1 + boots.REPEATS)
    assert not run.journal.of(boots.TOO_BUSY)
    assert [sample.window for sample in after.outcome.samples if not sample.disturbed] == ["q1-b1", "q1-b3", "q1-b4"]


@pytest.mark.parametrize("foreign", [0, 20, None])
def test_work_that_nobody_seen_explains_buys_no_second_draw(
    run: Run, monkeypatch: pytest.MonkeyPatch, foreign: int | None
) -> None:
    said: list[str] = []
    monkeypatch.setattr(run.progress, "note", said.append)
    order, after = measured(monkeypatch, run, [0, 90], foreign)
    quad = [f"q1-b{block}" for block in (1, 2, 3, 4)]
    assert order == quad
    found = [(sample.window, bool(sample.disturbed)) for sample in after.outcome.samples]
    assert found == [("q1-b1", False), ("q1-b2", True), ("q1-b3", False), ("q1-b4", False)]
    assert len(run.journal.of(boots.DISTURBED, explained=False)) == len(run.journal.of(boots.DISTURBED)) == 1
    assert said == [
        "disturbed, kept so and not measured again, as no other process that can be seen explains it: q1-b2"
    ]


def test_work_that_others_seen_explain_is_measured_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    order, _after = measured(monkeypatch, run, [0, 90], 21)
    assert len(order) == 8
    assert len(run.journal.of(boots.DISTURBED, explained=True)) == 1


QUADS = [f"q{number}" for number in range(1, 7)]


@given(st.sets(st.sampled_from(QUADS), min_size=1))
def test_no_choice_of_disturbed_quads_is_ever_faster(chosen: set[str]) -> None:
    """Whoever can make any quad count as disturbed, after having seen all of them, gains no PASS."""
    case = source_root() / "tests/gates/speed/faster_pass/input.json"
    given_ = GateInput.model_validate_json(case.read_bytes())
    assert speed.judge(given_).status is Status.PASS
    samples = tuple(
        one.model_copy(update={"disturbed": ("foreign fraction",) if one.window.split("-")[0] in chosen else ()})
        for one in given_.samples
    )
    assert speed.judge(given_.model_copy(update={"samples": samples})).status is not Status.PASS
