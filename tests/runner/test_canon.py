"""Decisions of people and the canon that follows from them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from runner import canon, decide, ledger
from runner.attest.keys import PrivateKey
from runner.attest.statement import sign
from runner.attest.trust import load_trust, repository_file, signer_line, trust_key, user_file
from runner.decide import Desk
from runner.errors import CarveError, InputError, TrustError
from runner.gates.registry import Withdrawn
from runner.model.adoption import Observation
from runner.model.boot import Label
from runner.paths import source_root
from tests.runner.records import START, Run, announce, digest_of, instant, make_run, publish, trust_of

pytestmark = pytest.mark.usefixtures("rate_gate")


R1 = "[r1](../reports/mini-lna2/r1/report.md)"


def at(hours: float) -> str:
    """Some hours after the first run began."""
    return instant(START + timedelta(hours=hours))


def text_of(workspace: Path) -> str:
    return canon.render(ledger.load(workspace, trust_of(workspace)))


def section(text: str, title: str) -> str:
    return text.split(f"## {title}")[1].split("\n## ", maxsplit=1)[0]


@pytest.fixture
def published(workspace: Path, demo_runner: PrivateKey, tmp_path: Path) -> Path:
    """A workspace with one passing report, ``r1``."""
    publish(workspace, demo_runner, make_run(run="r1"), tmp_path / "state")
    return workspace


def desk(workspace: Path, key: PrivateKey, hours: float = 1) -> Desk:
    return Desk.open(workspace, key, at(hours))


def test_a_report_is_pending_until_a_person_adopts(published: Path, demo_adopter: PrivateKey) -> None:
    before = text_of(published)
    assert f"| mini-lna2 | {R1} | cpu-mini (cpu) | PASS |" in section(before, "Pending")
    assert "r1" not in section(before, "Standing")
    decide.adopt(desk(published, demo_adopter), "r1", "twice as fast and as good")
    after = text_of(published)
    assert "r1" not in section(after, "Pending")
    standing = section(after, "Standing")
    for part in (
        "Adopted by adopter:demo-adopter",
        "twice as fast",
        "| speed | PASS | ratio | 2.0",
        "8192 KV tokens",
        "float32",
        "```sh\nvllm serve PACK \\\n  --max-model-len 2048 \\\n  --tensor-parallel-size 2\n",
        "| speed |  | decode rate, candidate (lna2), median of 12 blocks | 20.5",
        "Assurance: self-attested",
    ):
        assert part in standing
    assert "| 1 | speed-q5-b" in standing
    assert (published / canon.CANON).read_text() == after


def test_deleted_and_made_again_it_is_the_same(published: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(published, demo_adopter), "r1", "good")
    path = published / canon.CANON
    first = path.read_bytes()
    path.unlink()
    script = (
        "from pathlib import Path; from runner import canon, ledger; from runner.attest.trust import load_trust;"
        "from runner.gates import registry; from tests.runner.records import RateGate; registry._GATES = (RateGate(),);"
        "from runner import verify; verify.check_plan = lambda *sealed: None;"
        f"here = Path({str(published)!r});"
        "canon.write(here, canon.render(ledger.load(here, load_trust(here, user=False))))"
    )
    surroundings = {
        "PATH": os.environ["PATH"],
        "TZ": "Asia/Tokyo",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
        "HOME": "/nowhere",
    }
    subprocess.run([sys.executable, "-c", script], check=True, env=surroundings, cwd=source_root())
    assert path.read_bytes() == first
    assert canon.differs(published, first.decode()) == ""


def test_a_revoked_adoption_takes_exactly_its_lines(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(
        published,
        demo_runner,
        make_run(run="r2", order="mini-other", started=START + timedelta(hours=1)),
        tmp_path / "s",
    )
    decide.adopt(desk(published, demo_adopter, 2), "r1", "good")
    without = text_of(published)
    adoption = decide.adopt(desk(published, demo_adopter, 3), "r2", "good too")
    assert "### mini-other" in section(text_of(published), "Standing")
    decide.revoke(desk(published, demo_adopter, 4), adoption.name[:12], "measured on a busy machine")
    after = text_of(published)

    def body(text: str) -> str:
        """Without the date of the newest statement and the ledger's heads, which every statement moves."""
        before, _, rest = text.partition("As of ")
        return before + rest.partition("\n")[2].partition("## Ledger heads")[0]

    assert body(after) == body(without), "as if it had never been adopted: the report is pending again"
    assert "r2" in section(after, "Pending")


def test_a_newer_adoption_of_the_same_order_stands_and_the_older_is_history(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(published, demo_runner, make_run(run="r2", started=START + timedelta(hours=1)), tmp_path / "s")
    decide.adopt(desk(published, demo_adopter, 2), "r1", "good")
    decide.adopt(desk(published, demo_adopter, 3), "r2", "better")
    text = text_of(published)
    assert "Run [r2]" in section(text, "Standing")
    assert "Run [r1]" not in section(text, "Standing")
    assert f"| mini-lna2 | {R1} |" in section(text, "Adopted earlier")


def test_a_rejected_report_stays_with_its_reason(published: Path, demo_adopter: PrivateKey) -> None:
    decide.reject(desk(published, demo_adopter), "r1", "too small a gain | for its risk")
    assert "too small a gain &#124; for its risk" in section(text_of(published), "Rejected")


def test_a_rejection_taken_back_leaves_the_report_pending(published: Path, demo_adopter: PrivateKey) -> None:
    before = section(text_of(published), "Pending")
    rejection = decide.reject(desk(published, demo_adopter, 2), "r1", "too small a gain")
    assert R1 not in section(text_of(published), "Pending")
    decide.revoke(desk(published, demo_adopter, 3), rejection.name[:12], "the gain is enough after all")
    assert section(text_of(published), "Pending") == before
    assert R1 in before
    assert R1 not in section(text_of(published), "Rejected")


def test_a_rejected_report_is_adopted_only_once_the_rejection_is_taken_back(
    published: Path, demo_adopter: PrivateKey
) -> None:
    path = decide.reject(desk(published, demo_adopter, 1), "r1", "no need")
    with pytest.raises(TrustError, match=r"adopter:demo-adopter rejected it \(no need\)"):
        decide.adopt(desk(published, demo_adopter, 2), "r1", "good")
    decide.revoke(desk(published, demo_adopter, 3), path.name.removesuffix(ledger.SUFFIX), "wrong")
    decide.adopt(desk(published, demo_adopter, 4), "r1", "good")
    with pytest.raises(TrustError, match="adopted already, by adopter:demo-adopter"):
        decide.adopt(desk(published, demo_adopter, 5), "r1", "again")


def test_an_intent_without_a_report_is_abandoned_and_counted(
    published: Path, demo_runner: PrivateKey, tmp_path: Path
) -> None:
    announce(published, make_run(run="r2", started=START + timedelta(hours=1)), demo_runner)
    text = text_of(published)
    assert "| mini-lna2 | r2 |" in section(text, "Abandoned")
    assert section(text, "Pending").rstrip().endswith("| 2 |")


@pytest.mark.parametrize("rates", [("10", "9"), ("10", "10.2")])
def test_a_gate_that_does_not_pass_blocks(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, rates: tuple[str, str]
) -> None:
    publish(workspace, demo_runner, make_run(rates=rates), tmp_path / "s")
    with pytest.raises(TrustError, match="gate speed is FAIL"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "anyway")


@pytest.mark.parametrize(
    ("label", "reason"),
    [("none", "no engine answered"), ("simulated", "simulated seat"), ("attached", "only be adopted as descriptive")],
)
def test_what_a_label_allows(
    *, workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path, label: Label, reason: str
) -> None:
    publish(workspace, demo_runner, make_run(label=label), tmp_path / "s")
    with pytest.raises(TrustError, match=reason):
        decide.adopt(desk(workspace, demo_adopter), "r1", "good")
    if label == "attached":
        decide.adopt(desk(workspace, demo_adopter), "r1", "good to know", descriptive=True)
        assert "Run [r1]" in section(text_of(workspace), "Descriptive")


def test_a_cpu_report_is_never_adopted_for_a_gpu_seat(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(seat="h200-tp1", label="cpu"), tmp_path / "s")
    with pytest.raises(TrustError, match="not on h200-tp8"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "good", seat="h200-tp8")
    seen = Observation(created_at=at(-1), parents=(), seat="h200-tp1", label="real", subjects={}, resolved={})
    ledger.append_observation(workspace, seen, demo_runner)
    with pytest.raises(TrustError, match="h200-tp1 is a GPU seat"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "good")


def test_nobody_adopts_an_own_report(published: Path, demo_runner: PrivateKey) -> None:
    trust_key(repository_file(published), signer_line("adopter", "demo-both", demo_runner.public))
    with pytest.raises(TrustError, match="key that signed the report cannot adopt"):
        decide.adopt(desk(published, demo_runner), "r1", "mine")


def test_a_key_without_the_role_decides_nothing(published: Path) -> None:
    stranger = PrivateKey.generate()
    for decision in (decide.adopt, decide.reject):
        with pytest.raises(TrustError, match="nobody here trusts"):
            decision(desk(published, stranger), "r1", "good")
    assert not (published / ledger.ADOPTIONS).exists()


def test_adopting_needs_the_repositorys_trust(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, private_home: Path
) -> None:
    trust_key(user_file(), signer_line("runner", "demo-own", demo_runner.public))
    repository_file(published).write_text(signer_line("adopter", "demo-adopter", demo_adopter.public) + "\n")
    assert load_trust(published).key(demo_runner.public.id) is not None
    with pytest.raises(TrustError, match="nobody here trusts"):
        decide.adopt(desk(published, demo_adopter), "r1", "good")
    assert "reports/mini-lna2/r1/report.dsse.json" in section(text_of(published), "Files whose key")


def test_what_changed_on_the_seat_since_is_stale(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    decide.adopt(desk(published, demo_adopter), "r1", "good")
    seen = Observation(
        created_at=at(2),
        parents=(),
        seat="cpu-mini",
        label="cpu",
        subjects={"pack.payload": digest_of("new")},
        resolved={},
    )
    ledger.append_observation(published, seen, demo_runner)
    text = text_of(published)
    assert "Stale since the newest observation of cpu-mini: pack.payload" in section(text, "Standing")
    assert f"| cpu-mini | cpu | {at(2)} |" in section(text, "Seats as last observed")
    with pytest.raises(TrustError, match=r"pack\.payload has changed"):
        decide.adopt(desk(published, demo_adopter, 3), "r1", "again")


def test_an_adoption_that_breaks_the_rules_does_not_count_although_it_is_signed(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    publish(workspace, demo_runner, make_run(label="cpu"), tmp_path / "a")
    publish(workspace, demo_runner, make_run(run="r2", label="simulated"), tmp_path / "b")
    person = desk(workspace, demo_adopter)
    path = decide.adopt(person, "r1", "good")
    entry, name = person.report("r2")
    real = ledger.load(workspace, person.trust).entries[path.name.removesuffix(ledger.SUFFIX)]
    forced = real.predicate.model_copy(update={"report": name})
    ledger.append(workspace, ledger.ADOPTIONS, sign(forced, {"report": entry.digest}, demo_adopter))
    text = text_of(workspace)
    assert "simulated seat" in section(text, "Adoptions that do not count")
    assert "Run [r2]" not in section(text, "Standing")


def test_a_decision_about_a_report_that_is_gone_is_refused(published: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(desk(published, demo_adopter), "r1", "good")
    (published / "reports/mini-lna2/r1/report.dsse.json").unlink()
    with pytest.raises(TrustError, match="lost an entry"):
        text_of(published)


@pytest.mark.parametrize("digest", ["", "zz", "0" * 64])
def test_revoking_needs_one_decision(published: Path, demo_adopter: PrivateKey, digest: str) -> None:
    decide.adopt(desk(published, demo_adopter, 1), "r1", "good")
    decide.reject(desk(published, demo_adopter, 2), "r1", "not so good")
    with pytest.raises(InputError, match="no single decision"):
        decide.revoke(desk(published, demo_adopter, 3), digest, "why")


def test_an_expired_key_decides_nothing_more_but_what_it_decided_stands(
    published: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey
) -> None:
    decide.adopt(desk(published, demo_adopter, 1), "r1", "good")
    lines = [
        signer_line("runner", "demo-runner", demo_runner.public),
        signer_line("adopter", "demo-adopter", demo_adopter.public, valid_before=START + timedelta(hours=2)),
    ]
    repository_file(published).write_text("\n".join(lines) + "\n")
    assert "Run [r1]" in section(text_of(published), "Standing")
    with pytest.raises(TrustError, match="was not valid"):
        decide.reject(desk(published, demo_adopter, 3), "r1", "late")


def test_what_rests_on_a_withdrawn_gate_no_longer_counts(
    published: Path, demo_adopter: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide.adopt(desk(published, demo_adopter, 1), "r1", "good")
    gone = Withdrawn(kind="gate", name="speed", version=1, date="2026-11-20", reason="averaged warm-up blocks")
    monkeypatch.setattr("runner.judge.withdrawn", lambda: (gone,))
    text = text_of(published)
    assert "Run [r1]" not in section(text, "Standing")
    assert "speed@1 was withdrawn (2026-11-20, averaged" in section(text, "Adoptions that do not count")


def test_two_outside_witnesses_are_needed(
    workspace: Path, demo_runner: PrivateKey, demo_adopter: PrivateKey, tmp_path: Path
) -> None:
    run = make_run()
    boot = run.record.boots[0].model_copy(update={"ended": "died"})
    record = run.record.model_copy(update={"boots": (boot,)})
    publish(workspace, demo_runner, Run(record, run.files), tmp_path / "s")
    with pytest.raises(TrustError, match="2 witnesses from outside the engine are needed; client-clock stood"):
        decide.adopt(desk(workspace, demo_adopter), "r1", "fast")


def test_the_last_entries_of_all_are_missed_by_the_committed_canon(published: Path) -> None:
    canon.write(published, text_of(published))
    shutil.rmtree(published / "reports")
    assert canon.differs(published, text_of(published)).startswith("canon/LNA-CANON.md:6: found 'As of 2026-11-02")


def test_an_empty_repository_has_a_canon_too(workspace: Path) -> None:
    text = text_of(workspace)
    assert text.startswith("# LNA canon\n")
    assert "As of no date" in text
    assert canon.differs(workspace, text) == "canon/LNA-CANON.md does not exist"
    canon.write(workspace, text.replace("Generated", "Written"))
    assert canon.differs(workspace, text).startswith("canon/LNA-CANON.md:3: found 'Written by")
    canon.write(workspace, text + "more\n")
    assert "(nothing)" in canon.differs(workspace, text)


def test_statements_of_another_day_machine_and_python_give_the_same_bytes() -> None:
    golden = source_root() / "tests" / "records" / "v1"
    # Where the text takes another form on purpose: CARVE_WORKSPACE=tests/records/v1 runner canon
    assert canon.differs(golden, text_of(golden)) == ""


def test_the_committed_canon_follows_from_the_committed_statements() -> None:
    here = source_root()
    assert canon.differs(here, text_of(here)) == ""


def test_an_adoption_without_a_time_of_its_own_is_made_now(published: Path, demo_adopter: PrivateKey) -> None:
    person = Desk.open(published, demo_adopter)
    with pytest.raises(CarveError, match="older than the report"):
        decide.adopt(replace(person, at=at(-2)), "r1", "before it was measured")
