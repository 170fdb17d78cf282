"""What was measured against what was planned: boots, windows, drawn arms, ranks and the evidence each sample names."""

from __future__ import annotations

from typing import NoReturn

from runner.attest.statement import moment
from runner.draw import Draw
from runner.errors import TrustError
from runner.identity import identity_faults, weights_faults
from runner.model.base import Arm
from runner.model.boot import BootRecord
from runner.model.plan import PlannedWindow
from runner.model.report import Measured, ReportPredicate
from runner.model.sample import DivergenceDocument, DivergenceMeasure, Sample
from runner.stats import total


def _refuse(what: str, where: str, expected: object, found: object) -> NoReturn:
    raise TrustError(what, where=where, expected=str(expected), found=str(found))


def arm_of(window: PlannedWindow, draw: Draw) -> Arm:
    """The arm a window was measured in: where nothing is compared the incumbent's.

    The order of a quad's blocks is drawn from the seed, so it cannot be chosen afterwards.
    """
    if window.arm != "drawn":
        return "incumbent" if window.arm == "none" else window.arm
    quad, block = window.arguments.get("quad"), window.arguments.get("block")
    if not isinstance(quad, str) or not isinstance(block, int) or not 0 <= block < 4:
        raise TrustError(
            "a drawn window names no block of a quad",
            where=window.id,
            expected="arguments quad (text) and block (0..3)",
            found=f"{quad!r}, {block!r}",
        )
    return draw.arms(quad)[block]


def _check_boots(report: ReportPredicate, boots: dict[str, BootRecord], planned: set[str], where: str) -> None:
    started, ended = moment(report.started_at, where), moment(report.ended_at, where)
    for boot in boots.values():
        place = f"{where}, boot {boot.id}"
        if boot.planned not in planned or not boot.id.startswith(f"{boot.planned}-"):
            _refuse("a boot that the plan does not name", place, ", ".join(sorted(planned)), boot.planned)
        if not started <= moment(boot.started_at, place) <= ended:
            _refuse("a boot of another time", place, f"{report.started_at} to {report.ended_at}", boot.started_at)
        ranks = [each.rank for each in boot.ranks]
        if ranks != list(range(len(ranks))):
            _refuse("a rank is missing from the boot", place, "ranks 0, 1, ... without a gap", ranks)


def _check_sample(sample: Sample, window: PlannedWindow, boot: BootRecord, where: str) -> None:
    if boot.planned != window.boot:
        _refuse("a sample of another boot than planned", where, window.boot, boot.planned)
    if sample.instrument != window.instrument:
        _refuse("a sample of another instrument than planned", where, window.instrument, sample.instrument)
    ranks = [each.rank for each in sample.engagement]
    if ranks and ranks != [each.rank for each in boot.ranks]:
        _refuse("engagement does not cover the boot's ranks", where, [each.rank for each in boot.ranks], ranks)


_ROUNDED = 1e-9
"""What decimal text leaves out of a mean."""


def check_drawn(sample: Sample, window: PlannedWindow, draw: Draw, where: str) -> None:
    """The positions that stand for all others of a document follow from the seed, so that nobody picked them."""
    if not isinstance(sample.measure, DivergenceMeasure):
        return
    label, count = window.arguments.get("material", window.id), window.arguments.get("drawn", 0)
    for document in sample.measure.documents:
        expected = draw.positions(f"{label}/{document.id}", document.positions, count if isinstance(count, int) else 0)
        found = tuple(each.position for each in document.drawn)
        if expected != found:
            _refuse("positions that the seed did not draw", f"{where}, {document.id}", expected, found)
        if fault := _at_odds(document):
            _refuse("a document whose drawn positions say otherwise", f"{where}, {document.id}", *fault)


def _at_odds(document: DivergenceDocument) -> tuple[str, str] | None:
    """Expected and found where a document cannot be what its own drawn positions are a part of."""
    drawn = [float(each.kl) for each in document.drawn]
    agreeing = sum(each.top1_agrees for each in document.drawn)
    least, whole = total(drawn), float(document.mean_kl) * document.positions
    if drawn and float(document.max_kl) < max(drawn):
        return f"a largest KL of at least {max(drawn)}", document.max_kl
    if whole * (1 + _ROUNDED) < least:
        return f"a mean KL of at least {least / document.positions}", document.mean_kl
    others = document.positions - len(drawn)
    if not agreeing <= document.top1_agree <= agreeing + others:
        return f"{agreeing} to {agreeing + others} positions that agree", str(document.top1_agree)
    return None


def check_samples(report: ReportPredicate, measured: Measured, where: str) -> None:
    """Raises TrustError naming the boot or window that the plan does not allow."""
    plan = measured.plan
    windows = {window.id: window for window in plan.windows}
    boots = {boot.id: boot for boot in measured.boots}
    if len(boots) != len(measured.boots):
        _refuse("two boots with one id", where, "different ids", [boot.id for boot in measured.boots])
    calm = [sample.window for sample in measured.samples if not sample.disturbed]  # disturbed blocks are repeated
    if len(set(calm)) != len(calm):
        twice = sorted({window for window in calm if calm.count(window) > 1})
        what = "a window was measured twice and nothing says which counts"
        _refuse(what, where, "one undisturbed sample a window", twice)
    planned = {boot.id: boot for boot in plan.boots}
    _check_boots(report, boots, set(planned), where)
    faults = {boot.id: identity_faults(boot, planned[boot.planned], plan) for boot in measured.boots}
    sampled = {sample.boot for sample in measured.samples}
    if found := weights_faults([boot for boot in measured.boots if boot.id in sampled], plan):
        _refuse("boots of one run loaded different weights", where, "the same bytes in every boot", "; ".join(found))
    draw = Draw(bytes.fromhex(report.plan.seed), report.plan.digest)
    digests = set(report.evidence.files.values())
    for sample in measured.samples:
        place = f"{where}, window {sample.window}"
        window, boot = windows.get(sample.window), boots.get(sample.boot)
        if window is None or boot is None:
            _refuse("a sample of a window or boot that is not in the plan", place, "one of the plan's", sample.boot)
        _check_sample(sample, window, boot, place)
        if faults[boot.id]:
            what = "a sample of a boot that loaded something else than was sealed"
            _refuse(what, place, "what the plan seals", "; ".join(faults[boot.id]))
        arm = arm_of(window, draw)
        if sample.variant != plan.variants.get(arm):
            _refuse("the sample's variant is not that of its arm", place, plan.variants.get(arm, arm), sample.variant)
        check_drawn(sample, window, draw, place)
        if not digests.issuperset(sample.evidence):
            _refuse("a sample from evidence that the report does not list", place, "listed digests", sample.evidence)


__all__ = ["arm_of", "check_drawn", "check_samples"]
