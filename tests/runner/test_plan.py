"""Orders, their check against a seat, and the plan that follows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from runner.check import check, check_file
from runner.errors import InputError, StateError, TrustError
from runner.model.order import GateOrder, KernelOrder, OrderFile, SurveyOrder, load_order, parse_order
from runner.model.plan import Plan
from runner.paths import source_root
from runner.plan import compile_plan, plan_digest, seconds_of
from runner.plan_odds import odds
from runner.plan_windows import MAKERS
from runner.stats import sigma_of_half_width
from runner.steps.seal import _unchanged
from runner.steps.seats import load_manifest, seat_names
from runner.verify_order import check_order
from tests.runner.flow_orders import HEAD, SPEED, gate_order, kernel_order, write_order

ORDERS = [
    path
    for path in sorted((source_root() / "orders").glob("*.yaml"))
    if isinstance(load_order(path).order, KernelOrder | GateOrder)
]
COMMITMENT = "0" * 64
SUBJECTS = {"tree.runner": "1" * 64}


def planned(path: Path, seat: str = "") -> tuple[OrderFile, Plan]:
    file = load_order(path)
    assert isinstance(file.order, KernelOrder | GateOrder)
    manifest = load_manifest(seat or file.order.target.seat)
    return file, compile_plan(file, manifest, SUBJECTS, COMMITMENT)


@pytest.fixture(scope="module")
def fake() -> Plan:
    return planned(source_root() / "orders" / "fake-lna2.yaml")[1]


@pytest.mark.parametrize("path", ORDERS, ids=[path.stem for path in ORDERS])
def test_every_order_of_the_repository_can_be_decided(path: Path) -> None:
    assert check_file(path) == ()
    file, plan = planned(path)
    assert file.order.id == path.stem.lower()
    assert {gate.name for gate in plan.gates} == {gate.name for gate in file.order.gates if gate.planned is None}
    assert all(gate.windows for gate in plan.gates)
    assert {window.boot for window in plan.windows} == {boot.id for boot in plan.boots}


def test_the_plan_is_a_function_of_its_inputs(fake: Plan) -> None:
    again = planned(source_root() / "orders" / "fake-lna2.yaml")[1]
    assert plan_digest(again) == plan_digest(fake)
    assert Plan.model_validate_json(fake.model_dump_json(), strict=True) == fake
    moved = fake.model_copy(update={"seed_commitment": "1" * 64})
    assert plan_digest(moved) != plan_digest(fake)


def test_six_pairs_are_three_quads_in_each_shared_boot(fake: Plan) -> None:
    blocks = [window for window in fake.windows if window.arm == "drawn"]
    assert len(blocks) == 24
    for boot in ("shared-a", "shared-b"):
        quads = {window.arguments["quad"] for window in blocks if window.boot == boot}
        assert len(quads) == 3
    for window in blocks:
        same = [other for other in blocks if other.arguments["quad"] == window.arguments["quad"]]
        assert [other.arguments["block"] for other in same] == [0, 1, 2, 3]
        assert len({other.boot for other in same}) == 1
        first, second = same[:2], same[2:]
        for half in (first, second):
            assert len({other.arguments["material"] for other in half}) == 1


def test_no_arm_is_asked_the_same_twice_in_a_boot(fake: Plan) -> None:
    """A library that remembers what it answered gains nothing: an ABBA quad has one block of each arm in each half."""
    blocks = [window for window in fake.windows if window.arm == "drawn"]
    asked = Counter((window.boot, window.arguments["material"]) for window in blocks)
    assert set(asked.values()) == {2}
    for window in blocks:
        block = window.arguments["block"]
        assert isinstance(block, int)
        assert window.arguments["material"] == f"speed-{window.arguments['quad']}-{'ab'[block // 2]}"


def test_a_decode_kernel_declares_who_runs_which_rows(fake: Plan) -> None:
    window = next(window for window in fake.windows if window.id == "needle-candidate")
    found = [(one.variant, one.rows_min, one.rows_max, one.decline) for one in window.expects]
    assert found == [("lna2", 1, 64, None), ("incumbent", 65, 65, "rows-above-limit")]
    incumbent = next(window for window in fake.windows if window.id == "needle-incumbent")
    assert [(one.variant, one.rows_min, one.rows_max) for one in incumbent.expects] == [("incumbent", 1, 65)]


def test_a_kernel_for_linears_declares_them_and_nothing_of_the_routed_experts() -> None:
    _, plan = planned(source_root() / "orders/h200-dense.yaml")
    expects = [one for window in plan.windows for one in window.expects]
    assert {one.operator for one in expects} == {"linear"}
    assert {one.variant for one in expects} == {"dense", "incumbent"}
    written = plan.model_dump_json()
    assert Plan.model_validate_json(written) == plan
    _, other = planned(source_root() / "orders/h200-lna2.yaml")
    assert '"operator":"linear"' in written and '"operator"' not in other.model_dump_json()


def test_a_window_that_cannot_enter_the_candidate_is_a_control(fake: Plan) -> None:
    controls = {window.id: window.control for window in fake.windows}
    assert controls["ppl-prefill-candidate"]
    assert not controls["ppl-decode-candidate"]
    assert not controls["q1-b1"]
    engaged = next(gate for gate in fake.gates if gate.name == "engaged")
    assert "ppl-prefill-candidate" not in engaged.windows
    assert {"q1-b1", "q6-b4", "engaged", "ppl-decode-candidate"} <= set(engaged.windows)


def test_the_candidate_is_not_loaded_where_the_incumbent_stands_alone(fake: Plan) -> None:
    boots = {boot.id: boot for boot in fake.boots}
    assert boots["incumbent-only"].libraries == ()
    assert boots["shared-a"].libraries == ("lna2",)
    assert boots["forcing"].libraries == ("lna2", "lna2-watermark")
    assert (boots["knock-out-decline"].role, boots["knock-out-decline"].strict) == ("knock-out-decline", 2)


def test_the_desk_loads_the_candidate_only_for_a_gate_that_judges_it_there() -> None:
    loaded = {}
    for name in ("mini-lna2", "mini-silent-fallback"):
        file = load_order(source_root() / "orders" / f"{name}.yaml")
        plan = compile_plan(file, load_manifest("cpu-mini"), {}, "0" * 64)
        loaded[name] = next(boot.libraries for boot in plan.boots if boot.role == "desk")
    assert loaded == {"mini-lna2": ("lna2",), "mini-silent-fallback": ()}


def test_speed_is_sealed_with_the_primary_margin_and_the_seat_noise(fake: Plan) -> None:
    speed = next(gate for gate in fake.gates if gate.name == "speed")
    assert speed.parameters["margin"] == "0.05"
    assert (speed.parameters["boot_to_boot"], speed.parameters["alone"]) == ("0.05", "discounted")
    assert "a_a_half_width" not in speed.parameters  # the manifest's figure is assumed, not measured


def test_an_engine_against_itself_has_the_same_variant_twice(tmp_path: Path) -> None:
    plan = planned(write_order(tmp_path, gate_order()))[1]
    assert plan.variants == {"incumbent": "incumbent", "candidate": "incumbent"}
    assert [boot.id for boot in plan.boots] == ["desk", "shared-a", "shared-b"]


def test_forcing_boots_of_a_real_engine_bring_the_processor() -> None:
    plan = planned(source_root() / "orders" / "mini-lna2.yaml")[1]
    forcing = next(boot for boot in plan.boots if boot.id == "forcing")
    assert forcing.arguments == {"logits_processors": "serve.witness.force:Force"}
    assert seconds_of(plan) <= 600


def test_the_control_of_forced_decode_reads_the_same_documents_row_by_row() -> None:
    plan = planned(source_root() / "orders" / "mini-lna2.yaml")[1]
    boot = next(boot for boot in plan.boots if boot.role == "one-row")
    assert (boot.libraries, boot.arguments) == ((), {"max_num_batched_tokens": 1, "max_num_seqs": 1})
    gate = next(gate for gate in plan.gates if gate.name == "ppl-decode")
    forced, _, control = (window for window in plan.windows if window.id in gate.windows)
    assert (control.boot, control.instrument, control.control) == (boot.id, "ppl-prefill@1", True)
    assert [(one.variant, one.rows_min, one.rows_max) for one in control.expects] == [("incumbent", 1, 1)]
    assert control.arguments["material"] == forced.arguments["material"]
    assert control.arguments["tokens"] == forced.arguments["tokens"]


def test_no_control_is_planned_unless_asked_for(tmp_path: Path) -> None:
    plan = planned(write_order(tmp_path, kernel_order()))[1]
    assert "one-row" not in {boot.role for boot in plan.boots}


def test_a_good_candidate_rarely_fails_for_no_reason() -> None:
    path = source_root() / "orders" / "mini-lna2.yaml"
    file, plan = planned(path)
    assert isinstance(file.order, KernelOrder)
    found = odds(plan, file.order, load_manifest("cpu-mini"))
    assert sum(one.false_fail for one in found) <= 0.01
    assert all(one.false_pass <= 0.05 for one in found)


def test_the_chances_of_gates_over_documents_and_needles_are_counted() -> None:
    file, plan = planned(source_root() / "orders" / "fake-lna2.yaml")
    assert isinstance(file.order, KernelOrder)
    found = {one.gate: one.false_pass for one in odds(plan, file.order, load_manifest("fake"))}
    assert found["kld"] == found["ppl-decode"] == 2**-6, "of 20 documents in three languages 6 are in the smallest"
    assert found["needle"] == pytest.approx(0.8**3)
    assert found["resolved"] == 0


def test_pairs_of_boots_give_each_block_a_boot_of_its_own(tmp_path: Path) -> None:
    file, plan = planned(write_order(tmp_path, gate_order().replace("pairs: 6", "pairs: 6, pairing: boot")))
    blocks = [window for window in plan.windows if window.arm == "drawn"]
    assert [window.boot for window in blocks] == [
        f"pair-{quad}-{block}" for quad in range(1, 7) for block in range(1, 5)
    ]
    assert [boot.id for boot in plan.boots if boot.role == "shared"] == [window.boot for window in blocks]
    assert next(gate for gate in plan.gates if gate.name == "speed").parameters["pairing"] == "boot"
    assert isinstance(file.order, GateOrder)
    told = next(one for one in odds(plan, file.order, load_manifest("fake")) if one.gate == "speed")
    assert told.basis == f"A/A: σ of a pair {sigma_of_half_width(0.05, 6):.4f}"


def two_metrics() -> str:
    """An A/A order that declares two primary metrics."""
    text = gate_order(pairs=7).replace("pairs: 7", "pairs: 7, secondary: [aggregate-rate]")
    return text.replace("name: speed,", "name: speed, version: 2,")


def test_a_second_declared_metric_is_sealed_and_has_its_own_chance_to_fail(tmp_path: Path) -> None:
    path = write_order(tmp_path, two_metrics())
    assert check_file(path) == ()
    file, plan = planned(path)
    assert isinstance(file.order, GateOrder) and file.order.primary is not None
    (speed,) = (gate for gate in plan.gates if gate.name == "speed")
    assert (speed.version, speed.parameters["metric"], speed.parameters["secondary"]) == (
        2,
        "decode-rate",
        ["aggregate-rate"],
    )
    both = next(one for one in odds(plan, file.order, load_manifest("fake")) if one.gate == "speed")
    alone = file.order.model_copy(update={"primary": file.order.primary.model_copy(update={"secondary": ()})})
    first = next(one for one in odds(plan, alone, load_manifest("fake")) if one.gate == "speed")
    assert both.false_fail == pytest.approx(2 * first.false_fail) and both.power == pytest.approx(1 - both.false_fail)
    assert both.false_pass == first.false_pass and "2 metrics, each at 0.025" in both.basis
    check_order(two_metrics(), plan, "report")
    parameters = {name: value for name, value in speed.parameters.items() if name != "secondary"}
    for softer in (parameters, parameters | {"secondary": []}):
        gates = tuple(
            gate.model_copy(update={"parameters": softer}) if gate.name == "speed" else gate for gate in plan.gates
        )
        with pytest.raises(TrustError, match="judges by something else"):
            check_order(two_metrics(), plan.model_copy(update={"gates": gates}), "report")


WRONG = [
    ("pack: toy", "pack: other", "target.pack", "the seat serves 'toy'"),
    ("pairs: 6", "pairs: 5", "primary.pairs", "needs 6"),
    ("margin: 0.5", "margin: 0.001", "primary.margin", "below the seat's own A/A half width"),
    ("pairs: 6", "pairs: 7, secondary: [aggregate-rate]", "primary.secondary", "`version: 2` of the gate decides"),
    ("pairs: 6", "pairs: 6, secondary: [aggregate-rate]", "primary.pairs", "2 deciding metrics need 7"),
    ("languages: [en]", "languages: []", "primary.languages", "one language or several, each once"),
    ("languages: [en]", "languages: [en, en]", "primary.languages", "one language or several, each once"),
    ("pairs: 6", "pairs: 9, secondary: [decode-rate]", "primary.secondary", "declared twice"),
    (
        "margin: 0.5, pairs: 6",
        "margin: 0.04, pairs: 6, pairing: boot",
        "primary.margin",
        "own spread between boots 0.05",
    ),
    ("name: resolved", "name: resolvd", "gates.0.name", "unknown gate resolvd@1"),
    ("name: resolved", "name: resolved\n    version: 9", "gates.0.name", "unknown gate resolved@9"),
    ("name: resolved", "name: knock-out", "gates.0.name", "needs a candidate"),
    ("name: resolved", "name: resolved\n    parameters: {nonsense: 1}", "gates.0.parameters.nonsense", "Extra inputs"),
    ("name: speed", "name: finish", "primary", "decides nothing"),
    ("pack: toy", "pack: toy, serve: {block_size: 32}", "target.serve.block_size", "starts with 16"),
    ("gates:", "capability: [{name: gpu, available: no}]\ngates:", "capability.0.available", "no substitute"),
]


@pytest.mark.parametrize(("old", "new", "field", "words"), WRONG, ids=[case[1][:40] for case in WRONG])
def test_an_order_that_cannot_be_decided_says_where(tmp_path: Path, old: str, new: str, field: str, words: str) -> None:
    text = gate_order().replace(old, new, 1)
    found = check_file(write_order(tmp_path, text))
    fault = next(one for one in found if ".".join(map(str, one.fault.path)) == field)
    assert words in fault.fault.message
    assert str(fault).startswith(f"{tmp_path}/order.yaml:")
    assert text.splitlines()[fault.place.line - 1].strip()


def test_a_kernel_order_needs_its_candidate_to_be_seen(tmp_path: Path) -> None:
    text = kernel_order().replace("  - name: engaged\n", "")
    (fault,) = check_file(write_order(tmp_path, text))
    assert "gate engaged is missing" in fault.fault.message
    same = kernel_order().replace("variant: lna2", "variant: incumbent")
    assert any("the candidate is the incumbent" in str(one) for one in check_file(write_order(tmp_path, same)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (gate_order().replace("kind: gate", "kind: gates"), "order.yaml:3:1: kind: "),
        (gate_order().replace("pairs: 6", "pairs: six"), "whole number"),
        (gate_order() + "extra: 1\n", "Extra inputs"),
        (gate_order() + SPEED.replace("speed", "resolved"), "named twice"),
        (gate_order() + "kill_lines: [{gate: needle}]\n", r"yaml:\d+:15: gate.kill_lines.0.gate: .*no gate"),
        (gate_order() + "kill_lines:\n  - speed\n", "kill_lines.0: expected keys and values"),
        (kernel_order().replace("max_rows: 64", "max_rows: 64\n  sources: [../x.cpp]"), "leaves the checkout"),
        (gate_order().replace("schema_version: 1", "schema_version: 2"), "less than or equal to 1"),
    ],
)
def test_a_malformed_order_names_line_and_field(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        parse_order(text, "order.yaml")
    assert caught.value.where.startswith("order.yaml:")


def test_words_of_a_launch_line_stay_words() -> None:
    text = gate_order() + (
        "contract:\n  env_flags:\n    - {name: MOE_DECODE, default: off, values: [off, on]}\n"
        "facts:\n  - {id: norway, statement: no, label: measured, unit: 8:30}\n"
    )
    order = parse_order(text)
    assert order.contract is not None
    assert order.contract.env_flags[0].default == "off"
    assert order.contract.env_flags[0].values == ("off", "on")
    assert (order.facts[0].statement, order.facts[0].unit) == ("no", "8:30")


def test_a_survey_without_gates_loads_without_loss_and_decides_nothing(tmp_path: Path) -> None:
    head = HEAD.format(name="reading", kind="survey", seat="fake").replace("target: {seat: fake, pack: toy}\n", "")
    path = write_order(tmp_path, head + "questions: [Which modules can be split?]\n")
    order = load_order(path).order
    assert isinstance(order, SurveyOrder)
    assert order.questions == ("Which modules can be split?",)
    assert [fault.message for fault in check(order, load_manifest("none"))] == [
        "an order without gates decides nothing"
    ]


def test_every_seat_manifest_loads() -> None:
    assert {"fake", "fake-tp2"} <= set(seat_names())
    assert all(load_manifest(name).name == name for name in seat_names())
    with pytest.raises(InputError, match="no such seat"):
        load_manifest("moon")


def test_every_gate_of_this_checkout_can_be_planned() -> None:
    from runner.gates.registry import all_gates  # noqa: PLC0415 (only this test asks for all)

    assert {gate.NAME for gate in all_gates()} <= set(MAKERS)


def test_what_changed_since_sealing_is_named(fake: Plan) -> None:
    other = fake.model_copy(update={"subjects": {"tree.runner": "2" * 64}})
    with pytest.raises(StateError, match=r"subjects: tree\.runner"):
        _unchanged(fake, other)
    _unchanged(fake, fake)
