"""Each thing that an order may not be, made by one change to a sound one."""

from __future__ import annotations

import re

import pytest

from runner.check import check
from runner.model.order import parse_order
from runner.order_lines import for_a_person
from runner.steps.seats import load_manifest
from tests.runner.checks.orders_for_checks import SOUND, faults_of, fields

FACTS = [
    ("value: 812544", "value: 812545", "facts.0.probe", "the probe gives 812544"),
    (
        "probe: {kind: expert-bytes, hidden: 4096, intermediate: 256, bits: 2}",
        "policy: must-verify",
        "facts.0.label",
        "without evidence or probe",
    ),
    (
        "rests_on: [bytes]\n    measure",
        "rests_on: [old]\n    measure",
        "gates.3.rests_on.0",
        "superseded; bytes stands instead",
    ),
    ("rests_on: [bytes]\n    measure", "rests_on: [wrong]\n    measure", "gates.3.rests_on.0", "which is refuted"),
    ("rests_on: [bytes]\n    measure", "rests_on: [nothing]\n    measure", "gates.3.rests_on.0", "no fact 'nothing'"),
    ("unit: µs, rests_on: [bytes]}]", "unit: µs, rests_on: [wrong]}]", "kill_lines.0.rests_on.0", "which is refuted"),
    ("69.2, rests_on: [bytes]", "69.2, rests_on: [old]", "floors.0.rests_on.0", "superseded"),
    ("share: 0.31, rests_on: [time]", "share: 0.31, rests_on: [wrong]", "intent.expected_gain.rests_on.0", "refuted"),
    ("    scope: one rank of eight\n", "", "gates.3.rests_on.0", "does not say where it holds"),
    ("superseded_by: bytes", "superseded_by: gone", "facts.2.superseded_by", "no fact 'gone'"),
    ("status: superseded, ", "", "facts.2.status", "stands and is superseded"),
    (", superseded_by: bytes", "", "facts.2.superseded_by", "superseded by nothing"),
]
FLOORS = [
    ("pass_at: 88, unit: µs", "pass_at: 60, unit: µs", "gates.3.measure.thresholds.0.pass_at", "take at least 69.2"),
    ("pass_at: 88, unit: µs", "pass_at: 0.06, unit: ms", "gates.3.measure.thresholds.0.pass_at", "take at least 69.2"),
    ("pass_at: 88, unit: µs", "pass_at: 0.99, unit: × floor", "gates.3.measure.thresholds.0.pass_at", "take at least"),
    (
        "pass_at: 88, unit: µs",
        "pass_at: 88, stretch_at: 50, unit: µs",
        "gates.3.measure.thresholds.0.stretch_at",
        "asks for 50",
    ),
    ("pass_at: 88, unit: µs", "pass_at: 88, unit: GB/s", "gates.3.measure.thresholds.0.unit", "a line over a floor"),
    ("floor: least", "floor: most", "gates.3.measure.thresholds.0.floor", "no floor 'most'"),
    ("microseconds: 69.2", "microseconds: 64.7", "floors.0.microseconds", "take 69.22 µs"),
    ("bandwidth: 270", "bandwidth: 0", "floors.0", "must be positive"),
    ("low: 1.1, high: 1.3", "low: 1.5, high: 1.6", "intent.expected_gain.low", "at most 1.45 times"),
    ("low: 1.1, high: 1.3", "low: 1.4, high: 1.3", "intent.expected_gain.low", "above the high end"),
    ("share: 0.31", "share: 1.2", "intent.expected_gain.share", "between 0 and 1"),
]
JUDGEMENT = [
    (
        "pass_at: 1.15, unit: ratio",
        "kill_at: 1.2, pass_at: 1.15, unit: ratio",
        "gates.3.measure.thresholds.1.pass_at",
        "worse than kill_at",
    ),
    (
        "pass_at: 88, unit: µs",
        "pass_at: 88, stretch_at: 90, unit: µs",
        "gates.3.measure.thresholds.0.stretch_at",
        "worse than pass_at",
    ),
    ("argv: [--cold]", "argv: []", "gates.3.measure.instrument.argv", "no arguments"),
    ("      instrument: {path: bench.py, argv: [--cold]}\n", "", "gates.3.measure.instrument", "cannot be had again"),
    (
        "pass_at: 1.15, unit: ratio",
        "pass_at: 1.005, unit: ratio",
        "gates.3.measure.thresholds.1.pass_at",
        "than the noise 0.01",
    ),
    ("pass_at: 1.15, unit: ratio", "unit: ratio", "gates.3.measure.thresholds.1", "a line without a number"),
    ("- name: resolved", "- {name: resolved, planned: later}", "gates.0.planned", "exists: leave out"),
    ("    planned: cold time of a launch\n", "", "gates.3.name", "one that is still to be written says `planned`"),
    ("    rests_on: [bytes]\n    measure", "    parameters: {x: 1}\n    measure", "gates.3", "no parameters yet"),
    ('op: ">", value: 190', 'op: ">"', "kill_lines.0", "belong together"),
    ("gate: kernel-time, metric: launch", "gate: engaged, metric: x", "kill_lines.0.metric", "gives no figure 'x'"),
    (
        "  - name: speed\n",
        "  - name: speed\n  - {name: kld, parameters: {bound: 0.01}, windows: {documents: 2400000000}}\n",
        "gates.3.windows.documents",
        "between 0 and 1000",
    ),
    (
        "unit: µs, rests_on: [bytes]}]",
        "unit: µs, decided_before_run: false}]",
        "kill_lines.0.decided_before_run",
        "before the run",
    ),
    ("high: 1.3", "high: 1.04", "intent.expected_gain.high", "lies inside the margin"),
    ("margin: 0.05", "margin: 0.001", "primary.margin", "noise alone would decide"),
    ("pairs: 6}", "pairs: 5}", "primary.pairs", "needs 6"),
    (
        "  - name: speed\n",
        "  - name: speed\n  - {name: kld, parameters: {bound: 0.01}, windows: {documents: 12}}\n",
        "gates.3.windows.documents",
        "12 documents cannot decide",
    ),
    (
        "  - name: speed\n",
        "  - name: speed\n  - {name: kld, windows: {documents: 24}}\n",
        "gates.3.parameters.bound",
        "Field required",
    ),
]
PRIOR_ART = "design: {prior_art: [{what: the incumbent, where: exllamav3, verdict: slow}]}\n"
DUTIES = [
    (PRIOR_ART, "", "design.prior_art", "no prior art"),
    ("  - {name: ppl-decode, parameters: {margin: 0.005}}\n", "", "gates", "faster alone is worth nothing"),
    ("variant: lna2,", "variant: lna2, incumbent: half-k,", "candidate.incumbent", "wrong on purpose"),
    ("files_allowed: [kernels/cpu/lna2.cpp]", "files_allowed: [tests/*]", "candidate.files_allowed.0", "is nothing"),
    (", substitute_if_absent: another host", "", "capability.0.available", "no substitute"),
    ("field: primary.pairs", "field: primary.threads", "added.0.field", "no field primary.threads"),
    ("kind: kernel\n", "kind: kernel\nsupersedes: gone\n", "supersedes", "`archived_as` says where"),
    ("kind: kernel\n", "kind: kernel\nsupersedes: sound\n", "supersedes", "cannot take its own place"),
    ("goal: Show one thing.", "goal: <what is wanted>", "intent.goal", "still to be filled in: what is wanted"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [*FACTS, *FLOORS, *JUDGEMENT, *DUTIES],
    ids=lambda value: value.strip()[:30] if isinstance(value, str) else "",
)
def test_one_wrong_thing_is_one_named_fault(old: str, new: str, field: str, words: str) -> None:
    found = fields(faults_of(old, new))
    assert words in found.get(field, ""), found


def test_the_sound_order_has_no_fault_although_it_keeps_a_refuted_fact() -> None:
    assert faults_of() == ()


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ('name: sanitizer, available: "no"', 'name: sanitizer, available: "yes"', "capability.0.available", "lacks it"),
        ("needs: [gpu]", "needs: [profiler]", "gates.3.measure.needs", "has no profiler"),
    ],
)
def test_what_the_seat_lacks_needs_a_substitute(old: str, new: str, field: str, words: str) -> None:
    found = fields(faults_of(old, new, seat="ohtani-tp8"))
    assert words in found[field]
    manifest = load_manifest("ohtani-tp8")
    with_substitute = SOUND.replace("needs: [gpu]", "needs: [profiler]\n      substitute: counts of the witness")
    assert not {"gates.3.measure.needs"} & set(fields(check(parse_order(with_substitute), manifest)))


def test_an_addition_is_found_by_name_or_number() -> None:
    for field in ("gates.engaged", "gates.0", "facts.bytes.value", "target.pack"):
        assert faults_of("field: primary.pairs", f"field: {field}") == ()
    assert "no field gates.9" in fields(faults_of("field: primary.pairs", "field: gates.9"))["added.0.field"]


def test_what_takes_the_place_of_another_names_one_that_is_here_or_kept_elsewhere() -> None:
    for line in ("supersedes: t5", "supersedes: gone\narchived_as: the repository at 567c1fc"):
        assert faults_of("kind: kernel\n", f"kind: kernel\n{line}\n") == ()


def test_blanks_come_alone() -> None:
    found = faults_of(
        "why: A test asks for it.", "why: <why>\n  ceiling_not_for_verdict: [{what: x, value: 1, unit: <unit>}]"
    )
    assert {fault.message for fault in found} == {"still to be filled in: why", "still to be filled in: unit"}


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("gate: four-streams, metric: ja low end", "not asked for ja"),
        ("gate: watermark, metric: watermark rank 1", "has 1 ranks"),
        ("gate: watermark, metric: watermark-candidate rank 0", "gives no figure"),
    ],
)
def test_a_kill_line_rests_on_a_figure_that_this_order_gets(metric: str, words: str) -> None:
    asked = "  - name: restore\n  - name: watermark\n  - {name: four-streams, windows: {languages: [en]}}\n"
    text = SOUND.replace("  - name: restore\n", asked)
    manifest = load_manifest("fake")
    for honest in ("gate: four-streams, metric: en low end", "gate: watermark, metric: watermark rank 0"):
        assert check(parse_order(text.replace("gate: kernel-time, metric: launch", honest)), manifest) == ()
    found = fields(check(parse_order(text.replace("gate: kernel-time, metric: launch", metric)), manifest))
    assert words in found["kill_lines.0.metric"], found


def test_a_kill_line_rests_on_a_figure_of_its_gate() -> None:
    old = "gate: kernel-time, metric: launch"
    for new in (
        "gate: engaged, metric: windows proved",
        "gate: engaged, metric: candidate launches, action: ship-off",
        "gate: kernel-time, metric: whatever it will be",  # still to be written
    ):
        assert not faults_of(old, new), new
    for action in ("ship-off", "record", "stop"):
        found = fields(faults_of(old, f"gate: engaged, metric: x, action: {action}"))
        assert "gives no figure 'x'" in found["kill_lines.0.metric"], action


def test_a_line_that_a_person_looks_at_stops_no_work_by_itself() -> None:
    """The gate does not give its figure; what was drawn for a person may ship the work switched off."""
    drawn = "  - name: restore\n    measure: {place: person, thresholds: [{metric: x, op: '<', kill_at: 1, unit: s}]}\n"
    text = SOUND.replace("  - name: restore\n", drawn)
    old, manifest = "gate: kernel-time, metric: launch", load_manifest("fake")
    assert not check(parse_order(text.replace(old, "gate: restore, metric: x, action: ship-off")), manifest)
    for wrong in ("gate: restore, metric: x", "gate: restore, metric: y, action: ship-off"):
        found = fields(check(parse_order(text.replace(old, wrong)), manifest))
        assert "gives no figure" in found["kill_lines.0.metric"], wrong


@pytest.mark.parametrize(
    ("gate", "line", "words"),
    [
        ("ppl-decode", "{metric: perplexity, op: '<=', pass_at: 6.76, unit: p}", "parameters: {perplexity: 6.76}"),
        ("ppl-decode", "{metric: margin, op: '<=', pass_at: 0.01, unit: p}", "parameters: {margin: 0.01}"),
        ("speed", "{metric: 'log-ratio, median', op: '>=', pass_at: 0.3, unit: log}", "draw it as a kill line"),
    ],
)
def test_what_a_gate_can_judge_is_no_line_for_a_person(gate: str, line: str, words: str) -> None:
    def with_line(parameters: str, drawn: str) -> str:
        measure = f"measure: {{place: person, thresholds: [{drawn}]}}"
        asked = f"  - {{name: {gate}, {measure}, parameters: {{{parameters}}}}}\n"
        return re.sub(rf"(?m)^  - ({{name: {gate}, .*}}|name: {gate})\n", asked, SOUND)

    manifest, own = load_manifest("fake"), "margin: 0.005" if gate == "ppl-decode" else ""
    found = fields(check(parse_order(with_line(own, line)), manifest))
    (place,) = (place for place in found if place.endswith("measure.thresholds.0.metric"))
    assert words in found[place]
    by_hand = parse_order(with_line(own, "{metric: seen by eye, op: '<=', pass_at: 3, kill_at: 4, unit: flaws}"))
    assert not check(by_hand, manifest)
    assert for_a_person(by_hand) == ((gate, "seen by eye <= 3 flaws (kill 4)"),)


def test_a_line_that_a_parameter_repeats_is_judged() -> None:
    line = "measure: {place: person, thresholds: [{metric: perplexity, op: '<=', pass_at: 6.76, unit: p}]}"
    old = "{name: ppl-decode, parameters: {margin: 0.005}}"
    for written, judged in (("6.760", True), ("6.77", False)):
        new = f"{{name: ppl-decode, parameters: {{margin: 0.005, perplexity: {written}}}, {line}}}"
        order = parse_order(SOUND.replace(old, new))
        assert (check(order, load_manifest("fake")) == ()) is judged
        assert (for_a_person(order) == ()) is judged
