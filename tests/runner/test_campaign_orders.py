"""The campaign's own orders, written anew: no gate, threshold, kill line or standing of a fact got lost.

The tables below repeat what the campaign's orders said, apart from their YAML.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.check import check, check_file
from runner.cli import run
from runner.model.order import BakeOrder, GateRequest, OverlayOrder, PatchOrder, SurveyOrder, WorkOrder, load_order
from runner.model.order import parse_order as parse
from runner.model.order.text import line_of
from runner.paths import source_root
from runner.probes import findings
from runner.readiness import missing
from runner.steps.seats import load_manifest

FOLDER = source_root() / "orders"
NAMES = ("T2", "T3", "T4", "T5", "T6", "F1", "F2-T0", "F2-T1", "F3", "lna2-T1")


def order_of(name: str) -> WorkOrder:
    return load_order(FOLDER / f"{name}.yaml").order


def gate_of(order: WorkOrder, name: str) -> GateRequest:
    return next(request for request in order.gates if request.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_it_checks_and_keeps_its_form(name: str) -> None:
    assert check_file(FOLDER / f"{name}.yaml") == ()
    order = order_of(name)
    assert order.id == name.lower()
    assert order.archived_as
    assert order.added, "what the check demands and the campaign lacked is marked"
    assert all(addition.why for addition in order.added)
    assert order.people.approver == "Ken"
    assert order.result is not None
    assert order.result.decision is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("T2", OverlayOrder), ("T3", OverlayOrder), ("T4", BakeOrder), ("T5", SurveyOrder), ("T6", PatchOrder)],
)
def test_kinds(name: str, kind: type[WorkOrder]) -> None:
    assert isinstance(order_of(name), kind)


SEATS = {"T2": "ohtani-tp8-mixed", "T3": "ohtani-tp8-d2", "T4": "ohtani-tp8-d2", "T6": "ohtani-tp8-k2x3"}
"""What served on the same eight cards when the order was given."""


@pytest.mark.parametrize("name", SEATS)
def test_what_is_made_is_planned_beside_what_served_that_day(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    order, manifest = order_of(name), load_manifest(SEATS[name])
    assert isinstance(order, OverlayOrder | BakeOrder | PatchOrder)
    assert order.target is not None
    assert (order.target.seat, order.target.pack) == (manifest.name, manifest.pack)
    assert "target" in [addition.field for addition in order.added]
    canonical = load_manifest("ohtani-tp8")
    assert (manifest.machine, manifest.container) == (canonical.machine, canonical.container)
    assert manifest.pack != canonical.pack
    assert run(["plan", str(FOLDER / f"{name}.yaml")]) == 0
    assert "candidate-only" in capsys.readouterr().out


LINES = [
    ("T2", "verify", "expected names == 9216 tensors"),
    ("T2", "host-memory", "peak < 6 GB"),
    ("T3", "verify", "replaced names == 18432 tensors"),
    ("T3", "host-memory", "peak < 8 GB"),
    ("T3", "ppl-prefill", "perplexity <= 6.76 perplexity (kill 6.76)"),
    ("T4", "ppl-prefill", "perplexity <= 6.76 perplexity (kill 6.76)"),
    ("F1", "parity", "relative error of a row <= 2e-3 of its norm"),
    ("F1", "parity", "relative error of a row with bf16 output <= 6e-3 of its norm"),
    ("F1", "self-check", "relative error <= 2e-3 of the row norm"),
    ("F1", "launch-trace", "routed launches == 43 a step"),
    ("F1", "floor-ratio", "launch <= 1.25 × floor (2 bits, 4 rows)"),
    ("F1", "floor-ratio", "launch <= 1.25 × floor (3 bits, 16 rows)"),
    ("F2-T0", "dense-segment", "off over on >= 1.08 ratio (kill 1.05; stretch 1.15)"),
    ("F2-T0", "launches", "dense launches <= 345 a step"),
    ("F2-T0", "floor-ratio", "group a <= 58.5 µs"),
    ("F2-T0", "floor-ratio", "group b <= 36.6 µs"),
    ("F2-T0", "floor-ratio", "group c <= 7.4 µs"),
    ("F2-T0", "floor-ratio", "group d <= 43.8 µs"),
    ("F2-T0", "nan-poison", "NaN in the output == 0 values"),
    ("F2-T1", "dense-segment", "off over on >= 1.20 ratio (kill 1.15; stretch 1.35)"),
    ("F2-T1", "dense-segment", "dense segment <= 7.40 ms (kill 7.73; stretch 6.58)"),
    ("F2-T1", "launches", "dense launches <= 265 a step (stretch 258)"),
    ("F2-T1", "step-time", "gain >= 4 % of the step (kill 3; stretch 7)"),
    ("F2-T1", "four-streams", "all streams >= 142 tok/s (stretch 147)"),
    ("F3", "desk-baseline", "incumbent over lna2 >= 1.15 ratio (2 bits, 4 rows)"),
    ("F3", "desk-baseline", "p95 over p50 <= 1.10 of the p50"),
    ("F3", "trellis-interval", "trellis interval >= 200 GB/s (2 bits, 4 rows)"),
    ("F3", "floor-ratio", "cold p50 <= 88 µs (2 bits, 4 rows)"),
    ("F3", "floor-ratio", "cold p50 <= 128 µs (3 bits, 4 rows)"),
    ("F3", "floor-ratio", "cold p50 <= 312 µs (2 bits, 16 rows)"),
    ("F3", "floor-ratio", "cold p50 <= 463 µs (3 bits, 16 rows)"),
    ("lna2-T1", "memory", "routed scratch <= 4.853 MiB a device"),
]


@pytest.mark.parametrize(("name", "gate", "line"), LINES)
def test_a_line_is_where_it_was(name: str, gate: str, line: str) -> None:
    measure = gate_of(order_of(name), gate).measure
    assert measure is not None
    assert line in [line_of(threshold) for threshold in measure.thresholds]


KILLS = [
    ("T3", "ppl-prefill", "> 6.76", "stop"),
    ("T4", "ppl-prefill", "> 6.76", "stop"),
    ("F2-T0", "dense-segment", "< 1.05", "stop"),
    ("F2-T1", "dense-segment", "< 1.15", "ship-off"),
    ("F2-T1", "step-time", "< 3", "stop"),
    ("F2-T1", "four-streams", "< 1.0", "ship-off"),
    ("F2-T1", "eager-gap", "> 1.0", "ship-off"),
    ("F3", "trellis-interval", "< 150", "stop"),
    ("F3", "floor-ratio", "> 190", "stop"),
]


@pytest.mark.parametrize(("name", "gate", "figure", "action"), KILLS)
def test_a_kill_line_is_where_it_was(name: str, gate: str, figure: str, action: str) -> None:
    line = next(one for one in order_of(name).kill_lines if one.gate == gate)
    assert (f"{line.op} {line.value}", line.action, line.decided_before_run) == (figure, action, True)


def test_stages_exemptions_and_links_are_fields_and_no_words() -> None:
    for name in ("F2-T0", "F2-T1"):
        order = order_of(name)
        assert order.scope is not None
        assert [stage.launches for stage in order.scope.stages] == [341, 258, None]
        measure = gate_of(order, "floor-ratio").measure
        assert measure is not None
        assert [(one.case, one.reason_required) for one in measure.exempt] == [("group b", True)]
    for name in ("T2", "T3"):
        overlay = order_of(name)
        assert isinstance(overlay, OverlayOrder)
        assert overlay.recipe is not None
        assert (overlay.recipe.unchanged, overlay.recipe.store) == ("link", "packs")


ORDERED = {
    "F1": ("primitive", "parity", "self-check", "greedy-band", "floor-ratio"),
    "F2-T0": ("reconcile", "parity", "dense-segment", "group-pressure", "floor-ratio", "greedy-band", "eager-gap"),
    "F3": ("desk-baseline", "trellis-interval", "floor-ratio", "scheduler-stress", "parity", "speed"),
}


@pytest.mark.parametrize("name", ORDERED)
def test_gates_stand_in_the_campaigns_order(name: str) -> None:
    names = [request.name for request in order_of(name).gates]
    places = [names.index(gate) for gate in ORDERED[name]]
    assert places == sorted(places)


def test_refuted_facts_are_kept_with_their_status() -> None:
    refuted = {fact.id for fact in order_of("F2-T1").facts if fact.status == "refuted"}
    assert refuted == {"steps-by-spans", "ceiling-first", "all-split"}
    (first,) = [fact for fact in order_of("F1").facts if fact.id == "one-target"]
    assert (first.value, first.status) == ("105", "refuted")
    assert order_of("F1").supersedes == "f1-v1"
    assert order_of("F2-T0").supersedes == "f2-v1"


@pytest.mark.parametrize("name", NAMES)
def test_no_probe_contradicts_a_standing_fact(name: str) -> None:
    order = order_of(name)
    standing = {fact.id for fact in order.facts if fact.status == "standing"}
    assert [one for one in findings(order.facts) if one.fact in standing and one.agrees is not True] == []


def test_what_nobody_recorded_stays_unknown() -> None:
    container = load_manifest("ohtani-tp8").container
    assert container is not None
    assert container.digest == "unknown"
    for name in ("F1", "F2-T0", "F2-T1", "F3", "lna2-T1"):
        target = getattr(order_of(name), "target", None)
        assert target is not None
        assert set(target.pins.values()) == {"unknown"}


def test_the_plan_of_lna2_with_t1_is_a_draft(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert run(["plan", str(FOLDER / "lna2-T1.yaml")]) == 0
    text = capsys.readouterr().out
    for gate in order_of("lna2-T1").gates:
        assert gate.name in text, "no gate is dropped silently"
    assert "dense-segment          off over on < 1.15 ratio: ship-off" in text
    assert "digest of image built from a nightly of vLLM whose tag floats is unknown" in text
    assert "docker is not installed here" in text


@pytest.mark.parametrize("name", ["lna2-T1", "F3"])
def test_execute_says_what_is_missing_and_leaves_nothing(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["execute", str(FOLDER / f"{name}.yaml"), "--quiet"]) == 2
    told = capsys.readouterr().err
    for line in missing(order_of(name), load_manifest("ohtani-tp8")):
        assert line in told
    assert not list((home / "state").glob("runs/*"))


FIRST_VERSION = """
  - name: kernel-time
    planned: time of a launch, as the first version of F1 asked
    measure:
      place: desk
      instrument: {path: bench.py, argv: [--cold]}
      thresholds: [{metric: launch, op: "<=", pass_at: 105, unit: µs, where: every row count and width, floor: k3-m16}]
"""


def test_the_first_version_of_f1_would_have_been_refused() -> None:
    """105 µs for all rows and widths: 16 rows at 3 bits need 335.7 µs (campaign FL-60)."""
    text = (FOLDER / "F1.yaml").read_text(encoding="utf-8").replace("\ngates:\n", "\ngates:" + FIRST_VERSION, 1)
    faults = check(parse(text), load_manifest("ohtani-tp8"))
    assert ["335.7" in fault.message for fault in faults] == [True]
    assert "asks for 105 µs" in faults[0].message


def test_the_first_version_of_f2_would_have_been_refused() -> None:
    """A gate on 255 launches a step rests on a superseded fact (campaign FL-51)."""
    text = (FOLDER / "F2-T0.yaml").read_text(encoding="utf-8")
    old = text.replace("rests_on: [launches]", "rests_on: [launches-first]", 1)
    faults = check(parse(old), load_manifest("ohtani-tp8"))
    assert [fault.message for fault in faults] == [
        "rests on fact launches-first, which is superseded; launches stands instead"
    ]
