"""A boot that loaded something else than was sealed measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runner.attest.trust import load_trust
from runner.identity import host_faults, identity_faults, weights_faults
from runner.model.boot import NO_WEIGHTS, BootRecord
from runner.model.run import RunRecord
from runner.model.verdict import Status
from runner.session import open_run
from runner.steps.state import Silent
from runner.verify import verify
from runner.workflow import execute
from serve.seat import BootRequest
from tests.runner.flow_orders import kernel_order, write_order
from tests.runner.records import digest_of, make_run

RUN = make_run().record
(PLANNED,), (BOOT,) = RUN.plan.boots, RUN.boots


def with_rank(**changes: Any) -> BootRecord:
    """The boot with its second rank changed."""
    first, second = BOOT.ranks
    return BOOT.model_copy(update={"ranks": (first, second.model_copy(update=changes))})


def test_what_was_sealed_has_no_fault() -> None:
    assert identity_faults(BOOT, PLANNED, RUN.plan) == ()


@pytest.mark.parametrize(
    ("boot", "words"),
    [
        (with_rank(libraries={"lna2": digest_of("old"), "incumbent": digest_of("incumbent")}), "rank 1 loaded"),
        (with_rank(libraries={"incumbent": digest_of("incumbent")}), "rank 1 did not load the library of lna2"),
        (with_rank(trees={"witness": digest_of("edited")}), "rank 1 imported witness"),
        (BOOT.model_copy(update={"engine": {"record": digest_of("other")}}), "answered, sealed was"),
    ],
)
def test_something_else_is_named_with_its_rank(boot: BootRecord, words: str) -> None:
    (fault,) = identity_faults(boot, PLANNED, RUN.plan)
    assert words in fault


def test_a_desk_beside_an_engine_serves_nothing_that_could_be_another_engine() -> None:
    torch = BOOT.model_copy(update={"engine": {"name": "torch", "version": "2.11.0+cu130"}})
    assert len(identity_faults(torch, PLANNED, RUN.plan)) == 1
    assert identity_faults(torch, PLANNED.model_copy(update={"role": "desk"}), RUN.plan) == ()


def test_in_a_knock_out_boot_the_knock_out_answers_to_the_candidates_name() -> None:
    zero = PLANNED.model_copy(update={"role": "knock-out-zero"})
    plan = RUN.plan.model_copy(update={"subjects": {**RUN.plan.subjects, "library.knock-out-zero": digest_of("zero")}})
    libraries = {"lna2": digest_of("zero"), "incumbent": digest_of("incumbent")}
    ranks = tuple(rank.model_copy(update={"libraries": libraries}) for rank in BOOT.ranks)
    assert identity_faults(BOOT.model_copy(update={"ranks": ranks}), zero, plan) == ()
    assert len(identity_faults(BOOT, zero, plan)) == 2


def test_an_engine_other_than_the_sealed_one_measures_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.steps.build.toy_record", lambda: digest_of("yesterday's engine"))
    run = open_run(write_order(home, kernel_order(gates="")), progress=Silent())
    assert execute(run) == 2
    record = RunRecord.model_validate_json((run.folder / "record.json").read_bytes())
    assert {sample.window for sample in record.samples} <= {"restore"}
    assert {verdict.gate: verdict.status for verdict in record.verdicts}["engaged"] is not Status.PASS
    report = run.workspace / "reports" / record.plan.order / record.run
    assert verify(report, load_trust(run.workspace), run.workspace).verdict is not Status.PASS


def test_boots_that_serve_alike_load_the_same_bytes() -> None:
    other = with_rank(weights=digest_of("another pack")).model_copy(update={"id": "shared-b-00000002"})
    (fault,) = weights_faults([BOOT, other], RUN.plan)
    assert fault.startswith(f"rank 1 loaded weights {digest_of('another pack')} in shared-b-00000002")
    assert weights_faults([BOOT, with_rank(weights=NO_WEIGHTS), BOOT], RUN.plan) == ()


def test_a_product_has_other_weights_on_purpose() -> None:
    other = with_rank(weights=digest_of("a product")).model_copy(update={"planned": "candidate-only"})
    product = PLANNED.model_copy(update={"id": "candidate-only", "product": True})
    assert weights_faults([BOOT, other], RUN.plan.model_copy(update={"boots": (PLANNED, product)})) == ()


def test_a_pack_that_changes_between_two_boots_measures_nothing_more(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(request: BootRequest) -> str:
        return digest_of("exchanged" if request.planned.id == "forcing" else "the pack")

    monkeypatch.setattr("serve.adapters.fake._weights", weights)
    run = open_run(write_order(home, kernel_order()), progress=Silent())
    assert execute(run) == 2
    record = RunRecord.model_validate_json((run.folder / "record.json").read_bytes())
    assert {sample.boot.rpartition("-")[0] for sample in record.samples} == {"candidate-only", "desk"}
    assert {one.gate: one.status for one in record.verdicts}["kld"] is Status.NOT_RUN
    verify(run.workspace / "reports" / record.plan.order / record.run, load_trust(run.workspace), run.workspace)


DESK = PLANNED.model_copy(update={"id": "desk", "role": "desk"})
TWO = RUN.plan.model_copy(update={"boots": (PLANNED, DESK)})


def on(*devices: str, host: str | None = None, planned: str = PLANNED.id) -> BootRecord:
    """A boot with a device a rank, on a host."""
    ranks = tuple(rank.model_copy(update={"devices": (name,)}) for rank, name in zip(BOOT.ranks, devices, strict=False))
    return BOOT.model_copy(update={"ranks": ranks, "host": host, "planned": planned, "id": f"{planned}-{len(devices)}"})


@pytest.mark.parametrize(
    "boots",
    [
        [on("GPU-1", "GPU-2"), on("GPU-1", "GPU-2")],
        [on("GPU-1", "GPU-2", host="a"), on("GPU-1", "GPU-2", host="a")],
        [on("GPU-1", "GPU-2"), on("GPU-3", planned="desk")],  # a desk's card is its own
        [on("GPU-1", "GPU-2"), on(planned="desk"), on("GPU-1", "GPU-2")],  # a desk on the processor
        [on("GPU-1", "GPU-2", host="a"), on(planned="desk").model_copy(update={"engine": {}})],  # it only looked
        [on("GPU-1", "GPU-2"), on()],  # it never came up
        [],
    ],
)
def test_boots_of_one_machine_are_pooled(boots: list[BootRecord]) -> None:
    assert host_faults(boots, TWO) == ()


@pytest.mark.parametrize(
    ("boots", "words"),
    [
        ([on("GPU-1", "GPU-2"), on("GPU-1", "GPU-3")], "rank 1 had device GPU-3"),
        ([on("GPU-3", planned="desk"), on("GPU-1"), on("GPU-4", planned="desk")], "rank 0 had device GPU-4"),
        ([on("GPU-1", host="a"), on("GPU-1", host="b")], "ran on host b"),
        ([on("GPU-1", host="a"), on("GPU-1")], "ran on host unknown"),
        ([on("GPU-1", host="a"), on("GPU-3", planned="desk")], "ran on host unknown"),
        ([on("GPU-1", host="a"), on(host="b")], "ran on host b"),
    ],
)
def test_boots_of_two_machines_are_named(boots: list[BootRecord], words: str) -> None:
    (fault,) = host_faults(boots, TWO)
    assert words in fault
