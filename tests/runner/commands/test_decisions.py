"""``adopt``, ``reject``, ``waive``, ``revoke``, ``canon`` and ``keys`` as a person types them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
import yaml
from pydantic import JsonValue
from typer.testing import CliRunner

from recipe.mini.random_pack import generate
from recipe.pack import read_pack
from recipe.product import pack_digests
from runner.attest import keys
from runner.commands import canon, decisions, evidence
from runner.errors import InputError, TrustError
from runner.paths import config_home
from tests.runner.records import digest_of, make_run, publish

pytestmark = pytest.mark.usefixtures("rate_gate", "private_home")
APP = typer.Typer()
evidence.register(APP)
decisions.register(APP)
canon.register(APP)


def call(*arguments: str | Path, code: int = 0) -> str:
    """Output of a command that ends with ``code``; an error of ours is raised as it is."""
    result = CliRunner().invoke(APP, [str(each) for each in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new workspace with two keys of this user's, and one report that passes."""
    workspace = tmp_path / "w"
    for folder in ("orders", "canon", "reports"):
        (workspace / folder).mkdir(parents=True)
    monkeypatch.chdir(workspace)
    call("keys", "init", "demo-runner")
    call("keys", "init", "demo-adopter")
    call("keys", "trust", "demo-runner", "--repository")
    call("keys", "trust", "demo-adopter", "--role", "adopter", "--repository", "--until", "2099-01-01T00:00:00Z")
    publish(workspace, keys.load_or_create("demo-runner"), make_run(), tmp_path / "state")
    return workspace


def test_from_report_to_canon_and_back(here: Path) -> None:
    assert "does not exist" in call("canon", "--check", code=1)
    assert "written" in call("canon")
    assert "is current" in call("canon", "--check")
    statement = Path(
        json.loads(call("adopt", "r1", "--key", "demo-adopter", "--reason", "faster", "--json"))["statement"]
    )
    assert "adopter:demo-adopter" in (here / "canon/LNA-CANON.md").read_text()
    call("canon", "--check")
    assert "signed" in call("revoke", statement.name[:16], "--key", "demo-adopter", "--reason", "noise")
    assert "adopter:demo-adopter" not in (here / "canon/LNA-CANON.md").read_text()
    (here / "canon/LNA-CANON.md").write_text("by hand")
    assert json.loads(call("canon", "--check", "--json", code=1))["written"] is False


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("# PASS: ", "# FAIL: "),
        ("| speed@1 | PASS |", "| speed@1 | FAIL |"),
        ("| speed | ratio | 2.", "| speed | ratio | 3."),
        ("## Figures", "kld@1 | PASS | as required\n\n## Figures"),
        ("## Verdicts", "<!--\n## Verdicts"),
        ("Every gate of the order passed. ", "Passed. "),
    ],
)
def test_the_check_of_the_canon_reads_the_texts_it_links_to(*, here: Path, was: str, becomes: str) -> None:
    """Any other text is named: what a reader is shown by bars, comments or headings nobody can list."""
    call("canon")
    path = here / "reports/mini-lna2/r1/report.md"
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, becomes, 1))
    assert "reports/mini-lna2/r1/report.md:" in call("canon", "--check", code=1)
    call("canon", "--texts")
    assert path.read_text() == text
    call("canon", "--check")
    path.unlink()
    call("canon", "--check")


def test_a_decision_has_a_reason_and_a_waiver_an_hour_in_a_zone(here: Path, tmp_path: Path) -> None:
    publish(here, keys.load_or_create("demo-runner"), make_run(run="r2", rates=("10", "9")), tmp_path / "again")
    with pytest.raises(InputError, match="needs its reason"):
        call("reject", "r2", "--key", "demo-adopter", "--reason", " ")
    with pytest.raises(InputError, match="not a time that means the same everywhere"):
        call("waive", "r2", "speed", "--key", "demo-adopter", "--reason", "known", "--until", "2099-01-02")
    for until in (in_days(367), "9999-12-31T23:59:59.9999999Z"):
        with pytest.raises(InputError, match="a waiver without an end"):
            call("waive", "r2", "speed", "--key", "demo-adopter", "--reason", "known", "--until", until)


def in_days(days: int) -> str:
    """A moment so many days from now."""
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


@pytest.mark.parametrize("name", ["../x", "a/b", "demo two", "demo\nrunner:x", ""])
def test_a_key_has_a_name_that_a_file_of_signers_can_hold(here: Path, name: str) -> None:
    with pytest.raises(InputError, match="not a name for a key"):
        call("keys", "init", name)


def test_the_way_back_is_shown_and_then_gone(here: Path, tmp_path: Path) -> None:
    publish(here, keys.load_or_create("demo-runner"), make_run(run="r2"), tmp_path / "again")
    adopted = []
    for name in ("r1", "r2"):
        told = call("adopt", name, "--key", "demo-adopter", "--reason", "faster", "--json")
        adopted.append(Path(json.loads(told)["statement"]).name[:16])
    before = (here / "canon/LNA-CANON.md").read_text()
    shown = call("revert", adopted[1])
    assert "back to run r1" in shown and "vllm serve PACK" in shown and "8192 KV tokens" in shown
    assert (here / "canon/LNA-CANON.md").read_text() == before
    with pytest.raises(InputError, match="needs a reason"):
        call("revert", adopted[1], "--key", "demo-adopter")
    assert "signed" in call("revert", adopted[1], "--key", "demo-adopter", "--reason", "loses needles")
    assert "Run [r1]" in (here / "canon/LNA-CANON.md").read_text()
    assert "nothing was adopted before it" in call("revert", adopted[0])
    rejected = json.loads(call("reject", "r2", "--key", "demo-adopter", "--reason", "x", "--json"))["statement"]
    with pytest.raises(InputError, match="not an adoption"):
        call("revert", Path(rejected).name[:16])


CONTAINER: dict[str, JsonValue] = {
    "container.image": f"sha256:{'ab' * 32}",
    "container.devices": ["0", "1"],
    "container.command": ["python3", "-P", "-m", "vllm.entrypoints.openai.api_server", "--model", "/pack"],
    "container.ulimits": {"core": 0},
    "container.shared_memory_gb": 16,
    "container.mount./pack": "{pack} read-only",
    "container.mount./carve/code/runner/gates": "empty",
    "container.environment.CARVE_STRICT": "2",
    "container.environment.VLLM_PLUGINS": "carve_exl3,carve_witness",
}


def test_the_way_back_to_a_container_is_what_docker_read_back(here: Path, tmp_path: Path) -> None:
    key = keys.load_or_create("demo-runner")
    publish(here, key, make_run(run="r2", order="dense", resolved=CONTAINER), tmp_path / "contained")
    publish(here, key, make_run(run="r3", order="dense"), tmp_path / "newer")
    for name in ("r2", "r3"):
        told = call("adopt", name, "--key", "demo-adopter", "--reason", "faster", "--json")
    shown = call("revert", Path(json.loads(told)["statement"]).name[:16])
    for part in (
        "docker run \\\n  --name carve-cpu-mini",
        "--gpus '\"device=0,1\"'",
        "--ulimit core=0",
        "--mount 'type=bind,src={pack},dst=/pack,readonly'",
        "--mount type=tmpfs,dst=/carve/code/runner/gates",
        "--env VLLM_PLUGINS=carve_exl3,carve_witness",
        f"--entrypoint python3 sha256:{'ab' * 32} -P -m vllm.entrypoints.openai.api_server",
    ):
        assert part in shown
    assert "In braces stand places" not in (here / "canon/LNA-CANON.md").read_text(), "r3 stands, in no container"
    call("revert", Path(json.loads(told)["statement"]).name[:16], "--key", "demo-adopter", "--reason", "loses needles")
    assert "In braces stand places" in (here / "canon/LNA-CANON.md").read_text()


def test_a_key_that_only_ssh_keygen_can_use_adopts(here: Path) -> None:
    public = config_home() / "keys/demo-adopter.pub"
    call("adopt", "r1", "--key", str(public), "--reason", "touched the token")
    assert "touched the token" in (here / "canon/LNA-CANON.md").read_text()


def test_a_card_needs_an_adoption_and_says_what_is_in_the_pack(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = generate(tmp_path / "pack", experts=2, topk=1)
    header = read_pack(pack).header_digest()
    with pytest.raises(InputError, match="nobody has adopted"):
        call("card", pack)
    own = {"header": header, "payload": read_pack(pack).payload_digest()}
    monkeypatch.setattr("tests.runner.records.digest_of", lambda text: own.get(text) or digest_of(text))
    order = "card: {licence: apache-2.0, base_model: maker/model, credits: [those who trained it]}\n"
    publish(here, keys.load_or_create("demo-runner"), make_run(run="r3", more=order), tmp_path / "carded")
    call("adopt", "r3", "--key", "demo-adopter", "--reason", "faster")
    text = json.loads(call("card", pack, "--json"))["card"]
    front, _, body = text.removeprefix("---\n").partition("---\n")
    assert yaml.safe_load(front) == {
        "license": "apache-2.0",
        "base_model": "maker/model",
        "base_model_relation": "quantized",
        "pipeline_tag": "text-generation",
        "tags": ["exl3", "vllm"],
    }
    for part in ("| exl3 mcg, ", "| speed | PASS | ratio | 2.0", "vllm serve", "- those who trained it", header):
        assert part in body
    call("card", pack, "--output", tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == text


def test_the_card_of_what_was_made_is_that_very_pack_s(here: Path, tmp_path: Path) -> None:
    """Neither the pack that stood before nor one of the same headers and other weights gets it."""
    before, made = (generate(tmp_path / name, experts=2, topk=1, layers=count) for name, count in (("a", 1), ("b", 2)))
    (made / "provenance.json").write_text("{}\n")
    subjects = {"pack.header": read_pack(before).header_digest()}
    subjects |= {f"product.{name}": digest for name, digest in pack_digests(made).items()}
    run = make_run(run="r3", subjects=subjects)
    publish(here, keys.load_or_create("demo-runner"), run, tmp_path / "state")
    call("adopt", "r3", "--key", "demo-adopter", "--reason", "faster")
    text = json.loads(call("card", made, "--json"))["card"]
    assert "vllm serve MADE_PACK" in text and "runner product r3 --to MADE_PACK" in text
    assert "vllm serve MADE_PACK" in (here / "canon/LNA-CANON.md").read_text()
    with pytest.raises(InputError, match="nobody has adopted"):
        call("card", before)
    file = max(made.glob("*.safetensors"))
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="nobody has adopted"):
        call("card", made)


def test_a_card_says_what_a_waiver_lets_stand_open(here: Path, tmp_path: Path) -> None:
    pack = generate(tmp_path / "pack", experts=2, topk=1)
    subjects = {"pack.header": read_pack(pack).header_digest(), "pack.payload": read_pack(pack).payload_digest()}
    run = make_run(run="r3", rates=("10", "10.2"), subjects=subjects)
    publish(here, keys.load_or_create("demo-runner"), run, tmp_path / "state")
    until = in_days(30)
    call("waive", "r3", "speed", "--key", "demo-adopter", "--reason", "saves memory", "--until", until)
    call("adopt", "r3", "--key", "demo-adopter", "--reason", "saves memory")
    said = json.loads(call("card", pack, "--json"))["card"]
    assert f"- waiver of speed until {until[:10]}" in said and "Z: saves memory" in said


def test_reject_and_waive(here: Path, tmp_path: Path) -> None:
    key = str(config_home() / "keys/demo-adopter")
    call("reject", "r1", "--key", key, "--reason", "no need")
    assert "no need" in call("reports", "--rejected")
    publish(here, keys.load_or_create("demo-runner"), make_run(run="r2", rates=("10", "9")), tmp_path / "state")
    with pytest.raises(TrustError, match="gate speed is FAIL"):
        call("adopt", "r2", "--key", key, "--reason", "x")
    call("waive", "r2", "speed", "--key", key, "--reason", "saves memory", "--until", in_days(366))
    call("adopt", "r2", "--key", key, "--reason", "saves memory")


def test_advice_names_the_command_that_makes_the_repository_trust_a_key(here: Path) -> None:
    signers = here / "canon/allowed_signers"
    lines = {role: line for line in signers.read_text().splitlines() for role in [line.split(":")[0]]}
    call("keys", "trust", "demo-runner")
    for left_out, advice in (
        ("runner", "runner keys trust demo-runner --repository"),
        ("adopter", "runner keys trust demo-adopter --role adopter --repository"),
    ):
        signers.write_text("".join(f"{line}\n" for role, line in lines.items() if role != left_out))
        with pytest.raises(TrustError, match="the repository must") as refused:
            call("adopt", "r1", "--key", "demo-adopter", "--reason", "faster")
        assert refused.value.next_step == f"`{advice}`"


def test_a_runner_key_cannot_adopt(here: Path) -> None:
    with pytest.raises(TrustError):
        call("adopt", "r1", "--key", "demo-runner", "--reason", "mine")
    assert here.exists()


def test_keys_are_listed_with_where_trust_comes_from(here: Path) -> None:
    call("keys", "trust", "demo-runner", "--as", "demo-own")
    listed = json.loads(call("keys", "list", "--json"))
    assert {each["name"] for each in listed["own"]} == {"demo-runner", "demo-adopter"}
    assert {(each["principal"], each["source"]) for each in listed["trusted"]} == {
        ("runner:demo-runner", "repository"),
        ("adopter:demo-adopter", "repository"),
        ("runner:demo-own", "user"),
    }
    text = call("keys", "list")
    assert "until 2099-01-01" in text and "by user" in text
    assert "trusted already" in call("keys", "trust", "demo-runner", "--as", "demo-own")
    assert here.exists()


def test_keys_are_listed_outside_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(call("keys", "list", "--json")) == {"own": [], "trusted": []}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("keys", "trust", "demo-runner", "--role", "boss"), "no such role"),
        (("keys", "trust", "demo-nobody"), "no public key"),
        (("keys", "init", "demo-runner"), "exists already"),
        (("adopt", "r9", "--key", "demo-adopter", "--reason", "x"), "no such report"),
        (("adopt", "r1", "--key", "demo-nobody", "--reason", "x"), "no private key"),
    ],
)
def test_mistakes_are_named(here: Path, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        call(*arguments)
    assert here.exists()
