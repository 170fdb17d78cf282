"""Statements: what is written is read back, and nothing else is."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from runner.attest import dsse, statement
from runner.attest.keys import PrivateKey
from runner.attest.trust import Trust, read_signers, signer_line
from runner.digest import canonical_json
from runner.errors import InputError, TrustError
from runner.model.adoption import Adoption, Observation, ReportName, Revocation, Waiver
from runner.model.statement import Predicate, SignedIntent
from tests.runner.records import digest_of, make_run

RUNNER, ADOPTER = PrivateKey.generate(), PrivateKey.generate()
LINES = "\n".join(
    (
        signer_line("runner", "demo-runner", RUNNER.public),
        signer_line("adopter", "demo-adopter", ADOPTER.public),
    )
)
TRUST = Trust(read_signers(LINES, "repository", "allowed_signers"))
AT = "2026-12-01T12:00:00Z"
REPORT = ReportName(run="r1", order="mini-lna2", digest=digest_of("report"))
REVOCATION = Revocation(created_at=AT, parents=(), revokes=digest_of("adoption"), reason="measured again")
EVERY: list[tuple[Predicate, PrivateKey]] = [
    (
        SignedIntent(
            created_at=AT,
            parents=(),
            run="r1",
            order="mini-lna2",
            order_digest=digest_of("order"),
            plan_digest=digest_of("plan"),
            seed_commitment=digest_of("seed"),
            candidate={"library.lna2": digest_of("lna2")},
        ),
        RUNNER,
    ),
    (Observation(created_at=AT, parents=(), seat="cpu-mini", label="cpu", subjects={}, resolved={"a": 0.5}), RUNNER),
    (
        Adoption(
            created_at=AT,
            parents=(digest_of("head"),),
            result="ADOPTED",
            report=REPORT,
            seat="cpu-mini",
            scope="standing",
            waivers=(),
            reason="faster and as good",
        ),
        ADOPTER,
    ),
    (Waiver(created_at=AT, parents=(), report=REPORT, gate="needle", reason="known", expires_at=AT), ADOPTER),
    (REVOCATION, ADOPTER),
]


@pytest.mark.parametrize(("predicate", "key"), EVERY, ids=lambda value: type(value).__name__)
def test_what_is_signed_is_read_back(predicate: Predicate, key: PrivateKey) -> None:
    about = {"b": digest_of("b"), "a": digest_of("a")}
    if isinstance(predicate, Adoption | Waiver):
        about = {"report": predicate.report.digest}
    if isinstance(predicate, Revocation):
        about = {"decision": predicate.revokes}
    data = statement.sign(predicate, about, key)
    signed = statement.open_signed(data, TRUST, "x")
    assert signed.predicate == predicate
    assert list(signed.subjects) == sorted(about)
    assert signed.raw == predicate.model_dump(mode="json")
    assert signed.signers[0].key == key.public


def test_a_decision_about_something_else_than_its_subject_is_refused() -> None:
    """Other readers go by the subjects alone."""
    data = statement.sign(REVOCATION, {"decision": digest_of("another")}, ADOPTER)
    with pytest.raises(TrustError, match="about something else than it says"):
        statement.open_signed(data, TRUST, "x")


def test_a_waiver_ends_on_a_day_that_there_is() -> None:
    waiver = next(predicate for predicate, _ in EVERY if isinstance(predicate, Waiver))
    never = waiver.model_copy(update={"expires_at": "2026-02-30T00:00:00Z"})
    with pytest.raises(TrustError, match="not a time"):
        statement.open_signed(statement.sign(never, {"report": never.report.digest}, ADOPTER), TRUST, "x")


@pytest.mark.parametrize(("predicate", "key"), EVERY, ids=lambda value: type(value).__name__)
def test_a_key_of_the_other_role_is_refused(predicate: Predicate, key: PrivateKey) -> None:
    other = ADOPTER if key is RUNNER else RUNNER
    with pytest.raises(TrustError, match="another role"):
        statement.open_signed(statement.sign(predicate, {}, other), TRUST, "x")


def signed_value(**changes: object) -> bytes:
    """A revocation with changed fields, signed by somebody who may sign one."""
    content = {**REVOCATION.model_dump(mode="json"), **changes}
    value = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "decision", "digest": {"sha256": digest_of("adoption")}}],
        "predicateType": "urn:dsv4-carve:revocation:v1",
        "predicate": {name: each for name, each in content.items() if each is not None},
    }
    return dsse.sign(canonical_json(value), ADOPTER)


def test_the_helper_of_the_next_test_signs_what_is_accepted() -> None:
    assert statement.open_signed(signed_value(), TRUST, "x").predicate == REVOCATION


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"note": "x"}, "note: Extra inputs"),
        ({"reason": None}, "reason: Field required"),
        ({"reason": ""}, "reason: String should"),
        ({"reason": 1}, "reason: Input should be a valid string"),
        ({"parents": None}, "parents: Field required"),
        ({"parents": "abc"}, "parents: Input should"),
        ({"revokes": "ABC"}, "revokes: String should match"),
        ({"created_at": "2026-12-01 12:00"}, "created_at: String should match"),
        ({"created_at": "2026-13-01T12:00:00Z"}, "not a time"),
    ],
)
def test_other_fields_are_refused_although_they_are_signed(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(TrustError, match=reason):
        statement.open_signed(signed_value(**changes), TRUST, "x")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("_type", "https://in-toto.io/Statement/v0.1", "_type"),
        ("predicateType", "urn:dsv4-carve:revocation:v2", "unknown kind or version"),
        ("subject", [], None),
        ("subject", [{"name": "a", "digest": {"md5": "0"}}], "sha256"),
        ("subject", [{"name": "a", "digest": {"sha256": digest_of("a")}}] * 2, "named twice"),
        ("type", "https://in-toto.io/Statement/v1", "type: Extra inputs"),
    ],
)
def test_another_statement_around_it_is_refused(field: str, value: object, reason: str | None) -> None:
    whole = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [],
        "predicateType": "urn:dsv4-carve:revocation:v1",
        "predicate": REVOCATION.model_dump(mode="json"),
        field: value,
    }
    data = dsse.sign(canonical_json(whole), ADOPTER)
    if reason is None:
        assert statement.open_signed(data, TRUST, "x").subjects == {}
    else:
        with pytest.raises(TrustError, match=reason):
            statement.open_signed(data, TRUST, "x")


def test_a_float_where_text_decides_is_refused() -> None:
    sample = make_run().record.samples[0].model_dump(mode="json")
    sample["measure"]["decode_rate"] = 10.5
    with pytest.raises(ValidationError, match="decode_rate"):
        type(make_run().record.samples[0]).model_validate_json(canonical_json(sample), strict=True)


def test_a_number_that_json_cannot_hold_is_not_signed() -> None:
    observation = Observation(
        created_at=AT, parents=(), seat="s", label="cpu", subjects={}, resolved={"a": float("nan")}
    )
    with pytest.raises(InputError, match="JSON cannot hold"):
        statement.sign(observation, {}, RUNNER)


def test_the_size_is_limited_and_the_error_says_by_what() -> None:
    big = REVOCATION.model_copy(update={"reason": "x" * statement.PAYLOAD_LIMIT})
    with pytest.raises(InputError, match="most of them in reason"):
        statement.sign(big, {}, ADOPTER)


def test_asking_for_another_kind_is_refused() -> None:
    signed = statement.open_signed(signed_value(), TRUST, "x")
    with pytest.raises(TrustError, match="another kind"):
        signed.of(Waiver)
