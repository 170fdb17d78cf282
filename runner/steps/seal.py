"""Fix everything that decides, then say so in public: the plan, the seed's commitment, the signed intent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runner import ledger
from runner.attest.keys import PrivateKey, load_or_create
from runner.attest.trust import Trust, load_trust, signer_line, trust_key, user_file
from runner.clock import now
from runner.digest import canonical_json, sha256_bytes
from runner.draw import commitment, new_seed
from runner.errors import StateError
from runner.files import write_whole
from runner.model.plan import Plan
from runner.model.run import Intent
from runner.model.statement import SignedIntent
from runner.plan import compile_plan, plan_digest, seconds_of
from runner.steps.state import Run, Sealed

KEY_NAME = "runner"


def runner_key() -> PrivateKey:
    """This user's signing key, made and trusted for this user only on first use."""
    key = load_or_create(KEY_NAME)
    trust_key(user_file(), signer_line("runner", KEY_NAME, key.public))
    return key


def signing_key(workspace: Path, seconds: int = 0) -> PrivateKey:
    """:func:`runner_key`, where what it signs in so many seconds will count in this workspace.

    Raises StateError where the repository knows the key and its time is over by then.
    """
    key = runner_key()
    by_then = datetime.now(UTC) + timedelta(seconds=seconds)
    if ended := load_trust(workspace).ended(key.public.id, "runner", by_then):
        raise StateError(
            "the repository trusts this key no longer when it is to sign",
            where=key.public.id,
            expected=f"a key that is valid at {by_then:%Y-%m-%dT%H:%M:%SZ}",
            found=f"valid until {ended}",
            next_step="a person adds a line for the key with a later end to canon/allowed_signers, and "
            "`runner execute ORDER --resume RUN` finishes a run that has begun",
        )
    return key


def seal(run: Run) -> Run:
    """Seal, or on resume check that what was sealed still is what would be sealed now.

    Raises StateError where the order, the seat, the code or a library has changed since.
    """
    seed = _seed(run)
    plan = compile_plan(run.order, run.manifest, run.built.subjects, commitment(seed))
    digest, path = plan_digest(plan), run.folder / "plan.json"
    if path.exists():
        _unchanged(Plan.model_validate_json(path.read_bytes()), plan)
    else:
        write_whole(path, canonical_json(plan.model_dump(mode="json")))
    run.progress.expect(seconds_of(plan))
    begun = (run.folder / "intent.dsse.json").exists()
    key = signing_key(run.workspace, 0 if begun else seconds_of(plan))
    return replace(run, seal=Sealed(plan, digest, seed, _intent(run, plan, digest, key)))


def _seed(run: Run) -> bytes:
    path = run.folder / "seed"
    if not path.exists():
        write_whole(path, new_seed().hex().encode(), mode=0o600)
    return bytes.fromhex(path.read_text())


def changed_parts(sealed: Plan, planned: Plan) -> list[str]:
    """Fields in which two plans differ, then the subjects and instruments that do."""
    before, after = sealed.model_dump(mode="json"), planned.model_dump(mode="json")
    details = [
        f"{field}: {key}"
        for field in ("subjects", "instruments")
        for key in sorted(set(before[field]) | set(after[field]))
        if before[field].get(key) != after[field].get(key)
    ]
    return [*(name for name in before if before[name] != after[name]), *details]


def _unchanged(sealed: Plan, planned: Plan) -> None:
    changed = changed_parts(sealed, planned)
    if not changed:
        return
    raise StateError(
        "this run was sealed with another order, seat or code and cannot be resumed",
        where=sealed.order,
        expected=plan_digest(sealed),
        found=", ".join(changed),
        next_step="start a new run; the old one stays in the ledger as ABANDONED",
    )


def _intent(run: Run, plan: Plan, digest: str, key: PrivateKey) -> str:
    """The ledger's digest of this run's intent, which is signed once however often the run is resumed."""
    path = run.folder / "intent.dsse.json"
    if path.exists():
        return sha256_bytes(path.read_bytes())
    trust = load_trust(run.workspace)
    found = _in_ledger(run, trust)
    if found is None:
        intent = Intent(
            run=run.name,
            order=plan.order,
            order_digest=plan.order_digest,
            plan_digest=digest,
            seed_commitment=plan.seed_commitment,
            candidate={
                name: value
                for name, value in plan.subjects.items()
                if name.startswith(("library.", "pack.", "product."))
            },
            created_at=now(),
        )
        found = ledger.append_intent(run.workspace, trust, intent, key)
    write_whole(path, found[1])
    return found[0]


def _in_ledger(run: Run, trust: Trust) -> tuple[str, bytes] | None:
    """An intent of this run that a crash kept from the run folder."""
    for signed, intent in ledger.load(run.workspace, trust).of(SignedIntent):
        if intent.run == run.name:
            path = run.workspace / ledger.LEDGER / f"{signed.digest}{ledger.SUFFIX}"
            return signed.digest, path.read_bytes()
    return None
