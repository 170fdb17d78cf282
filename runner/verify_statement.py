"""What a report says of itself as a statement: subjects, parents, signer, names of evidence, cases of its self-test."""

from __future__ import annotations

import re

from runner.attest.statement import Signed
from runner.digest import sha256_json
from runner.errors import TrustError
from runner.gates.selftest import must_fail, shown
from runner.model.plan import Plan
from runner.model.report import ReportPredicate
from runner.model.statement import SignedIntent
from runner.model.verdict import Status

SET_ASIDE = "evidence/disturbed/"
"""Folder of a run's evidence that was measured again."""


def same(what: str, expected: object, found: object, where: str, next_step: str = "") -> None:
    """Raises TrustError where two things differ."""
    if expected != found:
        raise TrustError(what, where=where, expected=str(expected), found=str(found), next_step=next_step)


def check_subjects(signed: Signed, report: ReportPredicate, intent: SignedIntent, plan: Plan) -> None:
    """What was planned and announced is what the report is about."""
    promised = {**intent.candidate, **plan.subjects, "order": report.order.digest, "plan": report.plan.digest}
    for name, digest in promised.items():
        same(f"another {name} than was planned", digest, signed.subjects.get(name, "nothing"), signed.where)
    told = None if report.craft is None else sha256_json(report.craft.model_dump(mode="json"))
    same("the history of attempts was changed", signed.subjects.get("craft.history"), told, signed.where)
    more = sorted(signed.subjects.keys() - promised.keys() - {"craft.history"})
    same("a subject that nobody planned", "none", ", ".join(more) or "none", signed.where)


def check_self_test(report: ReportPredicate, planned: list[tuple[str, int]], where: str) -> None:
    """Each gate once, on a must-fail case of its own, about which it says here what the report says it said there.

    A case that this checkout does not have was somebody's own, or has another name by now. What it holds cannot be
    seen, so the gate is shown one of this checkout's in its place.
    """
    same(
        "a gate was not shown to fail where it must",
        planned,
        [(test.gate, test.version) for test in report.self_test],
        f"{where}, self_test",
    )
    for test in report.self_test:
        place = f"{where}, self_test of {test.gate}@{test.version}"
        same("a gate was not shown to fail where it must", True, test.status is not Status.PASS, place)
        known = sorted(must_fail(test.gate, test.version))
        if not known or not test.case.endswith("_fail"):
            expected = ", ".join(known) or "one of a gate that is known here"
            raise TrustError(
                "a gate was shown what is no must-fail case", where=place, expected=expected, found=test.case
            )
        if test.case in known:
            again = shown(test.gate, test.version, test.case)
            same("a gate says something else about its must-fail case", again, test.status, place)
        else:
            again = shown(test.gate, test.version, known[0])
            same(f"a gate of this checkout passes its must-fail case {known[0]}", True, again is not Status.PASS, place)


def unknown_cases(report: ReportPredicate) -> tuple[str, ...]:
    """Cases of the self-test that this checkout does not have, with their gate."""
    shown_here = ((test, must_fail(test.gate, test.version)) for test in report.self_test)
    return tuple(f"{test.gate} {test.case}" for test, known in shown_here if test.case not in known)


_FILE = re.compile(r"evidence/((?P<window>[^/]+)|(disturbed|aborted)/(?P<again>[^/]+)\.[1-9][0-9]*)\.json")
"""Evidence of a window, or of one that was measured again."""


def check_files(report: ReportPredicate, plan: Plan, where: str) -> None:
    """Every file of evidence is one of a planned window, as a run folder names it."""
    windows = {window.id for window in plan.windows}
    for name in report.evidence.files:
        found = _FILE.fullmatch(name)
        if found is None or (found["window"] or found["again"]) not in windows:
            raise TrustError("evidence of no planned window", where=f"{where}, evidence.files", found=name)


def check_statement(signed: Signed, report: ReportPredicate, intent: Signed) -> None:
    """What the report says of itself as an entry of the ledger, and of how often blocks were measured again."""
    where = signed.where
    same("the report does not follow its intent alone", (intent.digest,), report.parents, f"{where}, parents")
    own, announced = (sorted(signer.key.id for signer in each.signers) for each in (signed, intent))
    same(
        "the report is signed by another key than its intent",
        ", ".join(announced),
        ", ".join(own),
        where,
        "whoever announced a run signs its report; `runner reproduce` is how somebody else vouches for it",
    )
    aside = sum(name.startswith(SET_ASIDE) for name in report.evidence.files)
    same("blocks measured again are not those set aside", aside, report.repeats, f"{where}, repeats")


__all__ = ["check_files", "check_self_test", "check_statement", "check_subjects", "same", "unknown_cases"]
