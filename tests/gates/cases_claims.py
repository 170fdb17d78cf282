"""Cases of the gate about claims that are looked at again."""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from runner.gates.base import GateInput
from runner.model.sample import Claim, ClaimsMeasure, PackMeasure
from tests.gates.build import DESK, DIGEST, NO_RANKS, Case, given, sample, window

BYTES = Claim(fact="expert-bytes", stated="812544 bytes", found="812544", agrees=True)
WIDTH = Claim(fact="width", stated="512 features", found="bits of '*' differ: 2, 3", agrees=False)
READING = Claim(fact="reading", stated="wo_a is not called as a linear.", found="no probe", agrees=None)


def one(*claims: Claim, named: tuple[str, ...] | None = None, **parameters: Any) -> GateInput:
    names: list[JsonValue] = [claim.fact for claim in claims] if named is None else list(named)
    planned = window("claims", "desk", "claims", "none", arguments={"claims": names})
    measure = ClaimsMeasure(claims=claims)
    return given(parameters, DESK, [(planned, sample(planned, measure, **NO_RANKS))])


def claims() -> list[Case]:
    planned = window("claims", "desk", "claims", "none", arguments={"claims": ["width"]})
    unnamed = window("claims", "desk", "claims", "none")
    other = PackMeasure(header_digest=DIGEST, payload_digest=DIGEST, faults=())
    step = Claim(fact="steps", stated="46 steps", found="24", agrees=False)
    quote = Claim(fact="quoted", stated="it says so", found="README.md does not say 'so'", agrees=False)
    return [
        ("derived-again_pass", one(BYTES), "PASS", "1 of 1 claims", {"expert-bytes": "812544 bytes"}),
        ("one-on-evidence-alone_pass", one(BYTES, READING, unseen=1), "PASS", "1 of 2 claims"),
        ("FL-51-steps-by-spans_fail", one(BYTES, step), "FAIL", "found was 24"),
        ("FL-52-scope-forgotten_fail", one(WIDTH), "FAIL", "differ: 2, 3"),
        ("words-moved-away_fail", one(quote, BYTES), "FAIL", "does not say"),
        ("wrong-and-unseen_fail", one(step, READING), "FAIL", "46 steps is stated"),
        ("too-many-unseen_unresolved", one(BYTES, READING), "UNRESOLVED", "look at reading"),
        ("nothing-looked-at_invalid", one(READING, unseen=9), "INVALID", "nothing was shown"),
        ("no-claims_invalid", one(named=()), "INVALID", "nothing was shown"),
        ("claim-left-out_invalid", one(BYTES, named=("expert-bytes", "steps")), "INVALID", "the plan names 2"),
        ("another-claim_invalid", one(BYTES, named=("steps",)), "INVALID", "or they are others"),
        (
            "nothing-planned_invalid",
            given({}, DESK, [(unnamed, sample(unnamed, ClaimsMeasure(claims=(BYTES,)), **NO_RANKS))]),
            "INVALID",
            "the plan names 0",
        ),
        ("unknown-parameter_invalid", one(BYTES, nonsense=1), "INVALID", "nonsense"),
        (
            "sample-of-another-kind_invalid",
            given({}, DESK, [(planned, sample(planned, other, **NO_RANKS))]),
            "INVALID",
            "claims",
        ),
    ]
