"""Four and eight ranks in real processes: counters, traces, perturbations and skew of every single one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.draw import Draw
from runner.gates.base import GateInput
from runner.gates.registry import gate
from runner.model.engine_measure import LaunchesMeasure, RankSkewMeasure
from runner.model.plan import Expectation, PlannedBoot, PlannedWindow
from runner.model.sample import Sample
from runner.model.verdict import Status, Verdict
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.fake import FakeSeat
from serve.client.context import WindowContext
from serve.client.registry import driver
from serve.instruments.registry import instrument
from serve.seat import BootRequest

LIBRARIES = {"lna2": "lna2", "slow-rank": "slow-rank", "one-rank": "one-rank", "prewarm-only": "prewarm-only"}
PLANNED = PlannedBoot(id="traced", role="traced", libraries=tuple(LIBRARIES), strict=0, seconds=1)
KERNELS = {
    "prewarm-only": "*",
    "lna2": "lna2_kernel<*",
    "slow-rank": "slow_rank_kernel<*",
    "one-rank": "one_rank_kernel<*",
}


@pytest.fixture(scope="module", params=[4, 8])
def boot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedEngine]:
    folder = tmp_path_factory.mktemp("boot")
    running = FakeSeat().boot(
        BootRequest(
            planned=PLANNED,
            manifest=load_manifest(f"fake-tp{request.param}"),
            pack=folder,
            libraries={name: Path(library) for name, library in LIBRARIES.items()},
            variant="incumbent",
            allowed_declines=("rows-above-limit",),
            folder=folder,
        )
    )
    yield running
    record = running.stop()
    assert (record.ended, record.leftovers) == ("stopped", ())


def measured(boot: BootedEngine, name: str, variant: str, /, run: int = 1, **arguments: Any) -> tuple[Any, Sample]:
    """Window and sample of instrument ``name`` with ``variant`` on."""
    boot.switch(variant)
    window = PlannedWindow(
        id=f"{name}-candidate-{run}",
        boot="traced",
        instrument=f"{name}@1",
        arm="candidate",
        control=False,
        expects=(Expectation(variant=variant, rows_min=1, rows_max=64),),
        arguments={"layer_kernels": [KERNELS[variant]], "groups": {"routed": [KERNELS[variant]]}, **arguments},
        seconds=1,
    )
    context = WindowContext(
        window=window,
        boot=boot,
        manifest=load_manifest("fake-tp4"),
        draw=Draw(bytes(32), "0" * 64),
        pools=source_root() / "recipe/mini/text",
        variant=variant,
        pack=Path("toy"),
    )
    evidence = driver(window.instrument)(context)
    return window, instrument(name, 1).reduce([evidence], window)


def judged(boot: BootedEngine, name: str, readings: list[tuple[PlannedWindow, Sample]], **parameters: Any) -> Verdict:
    return gate(name, 1).judge(
        GateInput(
            parameters=parameters,
            planned_boots=(PLANNED,),
            windows=tuple(window for window, _ in readings),
            samples=tuple(sample for _, sample in readings),
            boots=(boot.record,),
        )
    )


def test_every_rank_leaves_a_trace_and_launches_the_same(boot: BootedEngine) -> None:
    window, sample = measured(boot, "launches", "lna2", tokens=12)
    assert sample.faults == ()
    assert isinstance(sample.measure, LaunchesMeasure)
    assert [rank.rank for rank in sample.measure.ranks] == list(range(len(boot.record.ranks)))
    # One step makes the first token from the prompt; the last annotated step only ends the window.
    assert {rank.steps for rank in sample.measure.ranks} == {10}
    exact = judged(boot, "launches", [(window, sample)], exactly={"routed": 2, "collective": 2, "other": 9})
    assert exact.status is Status.PASS, exact.reasons
    assert judged(boot, "launches", [(window, sample)], exactly={"routed": 3}).status is Status.FAIL
    assert boot.traces is not None
    assert list(boot.traces.glob("*")) == [], "traces are reduced and not kept"


def test_the_slow_rank_is_named(boot: BootedEngine) -> None:
    even = [measured(boot, "rank-skew", "lna2", run, tokens=8) for run in (1, 2, 3)]
    assert isinstance(even[0][1].measure, RankSkewMeasure)
    verdict = judged(boot, "rank-skew", even)
    assert verdict.status is Status.PASS, verdict.reasons
    slow = [measured(boot, "rank-skew", "slow-rank", run, tokens=8) for run in (1, 2, 3)]
    verdict = judged(boot, "rank-skew", slow)
    assert verdict.status is Status.FAIL
    assert all("rank 1 takes 19." in reason for reason in verdict.reasons)


def test_one_rank_that_falls_back_is_named(boot: BootedEngine) -> None:
    readings = [measured(boot, "launches", "one-rank", tokens=8)]
    verdict = judged(boot, "launches", readings)
    assert verdict.status is Status.INVALID
    assert any("rank 1: no kernel one_rank_kernel<* ran" in reason for reason in verdict.reasons)
    assert any("rank 1" in reason and "declined other" in reason for reason in verdict.reasons)
    assert not any(f"rank {rank}:" in reason for reason in verdict.reasons for rank in (0, 2, 3, 4, 5, 6, 7))


def test_a_perturbation_moves_every_rank(boot: BootedEngine) -> None:
    window, sample = measured(boot, "perturbation", "lna2", documents=6, tokens=48)
    verdict = judged(boot, "perturbation", [(window, sample)])
    assert verdict.status is Status.PASS, verdict.reasons
    assert len(sample.engagement) == len(boot.record.ranks)


def test_every_rank_holds_what_was_predicted(boot: BootedEngine) -> None:
    window, sample = measured(boot, "memory", "lna2")
    readings = [(window.model_copy(update={"expects": (), "control": True}), sample)]
    verdict = judged(boot, "memory", readings, predicted=["kv_cache_tokens"])
    assert verdict.status is Status.PASS, verdict.reasons
    assert judged(boot, "memory", readings).status is Status.INVALID, "nobody knows the toy's weights"


def test_what_ran_at_prewarm_alone_did_not_run(boot: BootedEngine) -> None:
    """Every rank counted launches before the window, as every rank once logged that it was active (FL-07)."""
    assert all(any(row.variant == "prewarm-only" and row.launches for row in rank.witness) for rank in boot.counters())
    window, sample = measured(boot, "engaged", "prewarm-only", tokens=8)
    verdict = judged(boot, "engaged", [(window, sample)])
    assert verdict.status is Status.INVALID
    for rank in range(len(boot.record.ranks)):
        assert any(f"rank {rank}, " in reason and "declined not-ready" in reason for reason in verdict.reasons)
