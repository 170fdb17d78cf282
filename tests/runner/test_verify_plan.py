"""A sealed plan is what order and manifest of its report compile to, also where the order is silent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import verify_plan
from runner.attest.trust import load_trust
from runner.digest import sha256_bytes
from runner.errors import TrustError
from runner.model.order import GateRequest, OrderFile, RunnableOrder
from runner.model.order.order import parse_order
from runner.model.plan import Plan
from runner.model.seat import SeatManifest
from runner.older_plans import OLDER_PLANS
from runner.paths import source_root
from runner.plan import compile_plan, plan_digest
from runner.plan_parameters import sealed_parameters
from runner.session import open_run
from runner.steps.seats import load_manifest
from runner.steps.state import Silent
from runner.verify import verify
from runner.verify_plan import check_plan
from runner.workflow import execute
from tests.runner.flow_orders import gate_order, kernel_order, write_order

FAKE = load_manifest("fake")
LNA2 = (source_root() / "orders" / "fake-lna2.yaml").read_text()

Values = dict[str, Any]


def compiled(text: str, manifest: SeatManifest = FAKE) -> Plan:
    file = OrderFile(order=parse_order(text), text=text, digest=sha256_bytes(text.encode()))
    return compile_plan(file, manifest, {}, sha256_bytes(b"seed"))


def check(text: str, plan: Plan, manifest: SeatManifest | None = FAKE) -> None:
    written = None if manifest is None else manifest.model_dump(mode="json")
    check_plan(text, written, plan, plan_digest(plan), "a report")


def _gate(plan: Values, name: str) -> Values:
    found: Values = next(gate for gate in plan["gates"] if gate["name"] == name)
    return found


def seal(name: str, parameter: str, value: object) -> Callable[[Values], None]:
    """The gate is sealed with one more or another parameter."""
    return lambda plan: _gate(plan, name)["parameters"].update({parameter: value})


def leave_out(name: str, parameter: str) -> Callable[[Values], None]:
    return lambda plan: _gate(plan, name)["parameters"].pop(parameter)


def measure(window: str, name: str, value: object) -> Callable[[Values], None]:
    """One window, and no other of its gate, measures less."""
    return lambda plan: next(one for one in plan["windows"] if one["id"] == window)["arguments"].update({name: value})


def read_less(plan: Values) -> None:
    _gate(plan, "speed")["windows"].pop()


def start_otherwise(plan: Values) -> None:
    plan["boots"][-1]["arguments"] = {"enforce_eager": True}


def stop_at_nothing(plan: Values) -> None:
    plan["kill_lines"] = ["speed"]


@pytest.mark.parametrize(
    ("soften", "place"),
    [
        (seal("speed", "require", "not-slower"), "gates.speed.parameters.require"),
        (seal("speed", "boot_to_boot", "9"), "gates.speed.parameters.boot_to_boot"),
        (seal("speed", "texts", "any"), "gates.speed.parameters.texts"),
        (seal("speed", "alone", "bounded"), "gates.speed.parameters.alone"),
        (seal("speed", "broken_off", 99), "gates.speed.parameters.broken_off"),
        (seal("speed", "a_a_half_width", "0"), "gates.speed.parameters.a_a_half_width"),
        (seal("speed", "short", "unresolved"), "gates.speed.parameters.short"),
        (leave_out("speed", "alone"), "gates.speed.parameters.alone"),
        (seal("resolved", "ignored", ["max_model_len"]), "gates.resolved.parameters.ignored"),
        (seal("kld", "coverage", "0.5"), "gates.kld.parameters.coverage"),
        (measure("kld-candidate", "documents", 1), "windows.kld-candidate.arguments.documents"),
        (measure("needle-candidate", "depths", [10]), "windows.needle-candidate.arguments.depths"),
        (measure("q3-b1", "tokens", 8), "windows.q3-b1.arguments.tokens"),
        (read_less, "gates.speed.windows"),
        (start_otherwise, "arguments.enforce_eager"),
        (stop_at_nothing, "kill_lines"),
    ],
)
def test_a_plan_that_is_softer_than_order_and_seat_is_refused(soften: Callable[[Values], None], place: str) -> None:
    honest = compiled(LNA2)
    check(LNA2, honest)
    values = honest.model_dump(mode="json")
    soften(values)
    with pytest.raises(TrustError, match="not what its order and its seat give") as refused:
        check(LNA2, Plan.model_validate(values))
    assert place in refused.value.where


def test_what_an_order_may_not_say_is_refused_though_the_plan_follows_from_it() -> None:
    text = gate_order()
    check(text, compiled(text))
    check(said := text.replace("name: speed,", "name: speed, parameters: {texts: equal},"), compiled(said))
    for said in ("boot_to_boot: 9", "broken_off: 99", "texts: any", "alone: bounded", "short: unresolved"):
        softer = text.replace("name: speed,", f"name: speed, parameters: {{{said}}},")
        with pytest.raises(TrustError, match="what it may not say"):
            check(softer, compiled(softer))


def test_without_its_manifest_only_a_published_plan_is_one() -> None:
    """The committed and the golden reports, of which most lack it, are verified by tests of their own."""
    text = gate_order()
    with pytest.raises(TrustError, match="not what its order and its seat give") as refused:
        check(text, compiled(text), None)
    assert refused.value.where.endswith("seat.manifest")
    check_plan(text, None, compiled(text), min(OLDER_PLANS), "a report")


def test_an_order_that_cannot_be_planned_is_refused() -> None:
    with pytest.raises(TrustError, match="not what its order and its seat give"):
        check(gate_order().replace("kind: gate", "kind: gift"), compiled(gate_order()))


def test_a_run_that_seals_a_softer_plan_measures_honestly_and_is_refused(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def report(name: str) -> Path:
        order = write_order(home, kernel_order(gates="").replace("small-lna2", name))
        run = open_run(order, progress=Silent())
        execute(run)
        return home / "workspace" / "reports" / name / run.name

    workspace = home / "workspace"
    assert verify(report("honest"), load_trust(workspace), workspace, deep=True).verdict == "PASS"
    with monkeypatch.context() as cheat:

        def softer(order: RunnableOrder, manifest: SeatManifest, request: GateRequest) -> Values:
            more: Values = {"ignored": ["max_model_len"]} if request.name == "resolved" else {}
            return sealed_parameters(order, manifest, request) | more

        cheat.setattr("runner.plan.sealed_parameters", softer)
        made = report("softer")
    verify_plan._compiled.cache_clear()  # what the cheat compiled in this very process
    with pytest.raises(TrustError, match="not what its order and its seat give"):
        verify(made, load_trust(workspace), workspace)
