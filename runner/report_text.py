"""``report.md``: the signed report for a person. Everything here can be read out of the report again."""

from __future__ import annotations

from runner.markdown import cell, table
from runner.model.attempt import History
from runner.model.report import Measured, ReportPredicate
from runner.model.verdict import Status
from runner.order_lines import open_rows, struck_rows
from runner.summary import attempt_outcome, engagement_text, primary_rate, unwatched, without_sample

_MEANING = {
    Status.PASS: "every gate of the order passed",
    Status.FAIL: "at least one gate failed",
    Status.INVALID: "at least one measurement did not measure what it should",
    Status.UNRESOLVED: "at least one question stays open at this noise",
    Status.NOT_RUN: "at least one gate did not run",
}


def _verdicts(report: ReportPredicate) -> list[str]:
    rows = [
        (f"{gate.name}@{gate.version}", gate.verdict, "; ".join(gate.reasons) or "as required") for gate in report.gates
    ]
    return ["## Verdicts", "", *table(("gate", "verdict", "why"), rows)]


def _lines_struck(report: ReportPredicate) -> list[str]:
    """Nothing where none struck, or only such as stop the work: the verdicts say that."""
    rows = struck_rows(report)
    return ["## Kill lines that struck", "", *table(("line", "action", "what follows"), rows)] if rows else []


def _open(report: ReportPredicate) -> list[str]:
    """Nothing where the order draws no line that its gates do not judge."""
    rows = open_rows(report)
    return ["## Lines that no gate judged: open for a person", "", *table(("gate", "line"), rows)] if rows else []


def _figures(report: ReportPredicate) -> list[str]:
    rows = [
        (gate.name, figure.name, f"{figure.value} {figure.unit}".strip(), figure.limit)
        for gate in report.gates
        for figure in gate.figures
    ]
    return ["## Figures and intervals", "", *table(("gate", "figure", "value", "limit"), rows)]


def _boots(measured: Measured) -> list[str]:
    rows = [
        (
            boot.id,
            boot.label,
            len(boot.ranks),
            f"{boot.ready_ms} ms",
            boot.kv_tokens,
            f"{boot.ended} {boot.ended_reason}",
        )
        for boot in measured.boots
    ]
    return ["## Boots", "", *table(("boot", "label", "ranks", "ready after", "KV tokens", "ended"), rows)]


def _engagement(measured: Measured) -> list[str]:
    rows = [
        (
            sample.window,
            sample.variant,
            each.rank,
            engagement_text(each.witness),
            engagement_text(each.candidate),
            "; ".join(f"{decline.variant} {decline.reason} {decline.count}" for decline in each.declines),
            primary_rate(sample) or "",
        )
        for sample in measured.samples
        for each in sample.engagement
    ]
    headers = ("window", "variant", "rank", "witness counted", "candidate counted", "declined", "tok/s")
    return ["## Engagement of the routed experts, rank by rank", "", *table(headers, rows)]


def _not_run(report: ReportPredicate, measured: Measured) -> list[str]:
    lines = [
        f"- gate {gate.name}: {cell('; '.join(gate.reasons))}"
        for gate in report.gates
        if gate.verdict is Status.NOT_RUN
    ]
    lines += [f"- window {window}: no sample" for window in without_sample(measured)]
    lines += [
        f"- boot {boot.id}: {boot.ended}, {cell(boot.ended_reason)}"
        for boot in measured.boots
        if boot.ended in {"died", "aborted"}
    ]
    return ["## What was not run", "", *(lines or ["Nothing: every planned window has a sample."]), ""]


def _disturbed(measured: Measured) -> list[str]:
    """Nothing where the machine was left alone."""
    planned = {window.id: window for window in measured.plan.windows}
    counting = {sample.window: sample for sample in sorted(measured.samples, key=lambda one: not one.disturbed)}
    rows = []
    for sample in measured.samples:
        if not sample.disturbed:
            continue
        if counting[sample.window] is not sample:
            what = "not counted: it was measured again"
        elif planned[sample.window].arm == "drawn":
            what = "its pair was not counted"
        else:
            what = "counted"
        rows.append((sample.window, "; ".join(sample.disturbed), what))
    if not rows:
        return []
    return [
        "## Measured while the machine was disturbed",
        "",
        *table(("window", "how", "in its gate"), rows),
    ]


def attempt_lines(craft: History | None) -> list[str]:
    """Nothing where nobody was given the order."""
    if craft is None:
        return []
    unproven = craft.unproven
    rows = [
        (
            one.number,
            f"said to be {one.craftsperson}" if unproven else one.craftsperson,
            one.session.sandbox,
            ", ".join(one.changed),
            attempt_outcome(one),
        )
        for one in craft.attempts
    ]
    title = ["## Attempts as told, not proven", "", f"{cell(unproven)}.", ""] if unproven else ["## Attempts", ""]
    lines = [*title, *table(("attempt", "by", "sandbox", "changed", "what came of it"), rows)]
    if missed := unwatched(craft.attempts):
        lines += ["## What nobody watched of them", "", *table(("attempt", "what"), missed)]
    return lines


def _evidence(report: ReportPredicate) -> list[str]:
    counts = f"{len(report.evidence.kept)} of {len(report.evidence.files)}"
    lines = [f"Of {counts} evidence files `evidence.tar.xz` holds what their instruments read.", ""]
    if report.evidence.not_kept:
        lines += ["In the run folder only (not kept here, digests in the report):", ""]
        lines += [f"- {cell(name)}" for name in report.evidence.not_kept] + [""]
    return ["## Evidence", "", *lines]


def render(report: ReportPredicate, measured: Measured) -> str:
    """The text, a pure function of the report."""
    facts = [
        ("order", f"{report.order.name} ({report.order.digest[:16]})"),
        ("seat", f"{report.seat.name}, label {report.seat.label}"),
        ("candidate's sandbox", report.seat.isolation),
        ("run", report.run),
        ("measured", f"{report.started_at} to {report.ended_at}"),
        ("plan", report.plan.digest[:16]),
        ("intent", report.plan.intent[:16]),
        ("outside witnesses", ", ".join(report.assurance) or "none"),
        ("assurance level", report.assurance_level),
        ("blocks repeated", report.repeats),
        ("challenge of the seat", report.challenge[:16] if report.challenge else "none"),
    ]
    tests = [(f"{test.gate}@{test.version}", test.case, test.status) for test in report.self_test]
    costs = [(cost.what, cost.seconds) for cost in report.costs]
    costs.append(("together", sum(cost.seconds for cost in report.costs)))
    environment = [(name, report.environment[name]) for name in sorted(report.environment)]
    return "\n".join(
        [
            f"# {report.verdict}: {report.order.name} on {report.seat.name}",
            "",
            f"{_MEANING[report.verdict].capitalize()}. This text is generated; `report.dsse.json` is what is signed.",
            "",
            *table(("", ""), facts),
            *_verdicts(report),
            *_lines_struck(report),
            *_open(report),
            *_figures(report),
            *_not_run(report, measured),
            *_disturbed(measured),
            *attempt_lines(report.craft),
            *_boots(measured),
            *_engagement(measured),
            "## Cases that each gate had to refuse first",
            "",
            *table(("gate", "case", "answer"), tests),
            "## Seat time",
            "",
            *table(("step", "seconds"), costs),
            "## Machine",
            "",
            *table(("", ""), environment),
            *_evidence(report),
        ]
    )


__all__ = ["attempt_lines", "render"]
