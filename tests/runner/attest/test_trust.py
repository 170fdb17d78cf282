"""``allowed_signers``: roles, times, two sources, and the same reading as ssh-keygen's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner.attest import keys
from runner.attest.keys import PrivateKey
from runner.attest.trust import Trust, load_trust, read_signers, repository_file, signer_line, trust_key, user_file
from runner.errors import InputError, TrustError
from tests.runner.records import make_workspace

KEY = PrivateKey.generate()
LINE = KEY.public.openssh
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def trust(text: str) -> Trust:
    return Trust(read_signers(text, "repository", "allowed_signers"))


def test_comments_and_empty_lines_say_nothing() -> None:
    assert read_signers("# nobody\n\n   \n", "repository", "x") == ()


def test_a_line_names_roles_and_people() -> None:
    (one, two) = read_signers(f"runner:demo-a,adopter:demo-b {LINE} a comment", "user", "x")
    assert (one.principal, two.principal, one.key, one.source) == (
        "runner:demo-a",
        "adopter:demo-b",
        KEY.public,
        "user",
    )


@pytest.mark.parametrize(
    ("moment", "valid"),
    [
        (datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC), False),
        (datetime(2026, 12, 1, tzinfo=UTC), True),
        (datetime(2026, 12, 31, 12, 30, tzinfo=UTC), True),
        (datetime(2026, 12, 31, 12, 30, 1, tzinfo=UTC), False),
    ],
)
def test_validity_is_judged_at_the_time_of_the_statement(moment: datetime, valid: bool) -> None:
    known = trust(f'runner:demo-a namespaces="dsv4-carve",valid-after="20261201Z",valid-before="202612311230Z" {LINE}')
    if valid:
        assert known.signer(KEY.public.id, ("runner",), moment, "x").name == "demo-a"
    else:
        with pytest.raises(TrustError, match="was not valid when this was signed"):
            known.signer(KEY.public.id, ("runner",), moment, "x")


def test_a_key_renewed_on_a_second_line_is_valid_in_both_periods() -> None:
    known = trust(f'runner:demo-a valid-before="20261101Z" {LINE}\nrunner:demo-a valid-after="20261201Z" {LINE}')
    assert known.signer(KEY.public.id, ("runner",), NOON, "x").valid_after is not None
    with pytest.raises(TrustError, match="not valid"):
        known.signer(KEY.public.id, ("runner",), datetime(2026, 11, 15, tzinfo=UTC), "x")


def test_a_key_has_only_its_role() -> None:
    with pytest.raises(TrustError, match="another role"):
        trust(f"runner:demo-a {LINE}").signer(KEY.public.id, ("adopter",), NOON, "x")
    with pytest.raises(TrustError, match="nobody here trusts"):
        trust("").signer(KEY.public.id, ("adopter",), NOON, "x")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"demo-a {LINE}", "role"),
        (f"boss:demo-a {LINE}", "role"),
        (f"runner:* {LINE}", "role"),
        (f"!runner:demo-a {LINE}", "role"),
        (f"runner:demo-a, {LINE}", "role"),
        (f"runner:demo-a cert-authority {LINE}", "not read here"),
        (f'runner:demo-a namespaces="git" {LINE}', "other purposes"),
        (f'runner:demo-a valid-before="20261231" {LINE}', "same everywhere"),
        (f'runner:demo-a valid-before="20261331Z" {LINE}', "same everywhere"),
        (f'runner:demo-a valid-before="2026Z" {LINE}', "same everywhere"),
        (f'runner:demo-a valid-before="20261231Z",valid-before="20271231Z" {LINE}', "twice"),
        (f"runner:demo-a valid-before {LINE}", "not read here"),
        ("runner:demo-a", "not a line"),
        (f"{LINE}", "not a line"),
        ("runner:demo-a ssh-ed25519", "not a line"),
        ("runner:demo-a ssh-ed25519 AAAA", "public key"),
    ],
)
def test_a_line_that_could_be_misread_is_refused_with_its_number(line: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        read_signers(f"# first\n{line}\n", "repository", "signers")
    assert caught.value.where == "signers:2"


@pytest.mark.parametrize("hidden", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\u202e"])
def test_nobody_is_trusted_out_of_a_comment(hidden: str) -> None:
    line = signer_line("adopter", "demo", PrivateKey.generate().public)
    assert len(read_signers(f"# a comment\r\n\t{line}\r\n", "repository", "file")) == 1
    with pytest.raises(InputError, match="does not read as it looks"):
        read_signers(f"# a comment{hidden}{line}\n", "repository", "file")


def test_ssh_keygen_reads_the_same_line(tmp_path: Path) -> None:
    key = tmp_path / "demo-adopter"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = keys.load(key).public
    until = datetime(2026, 12, 31, tzinfo=UTC)
    (tmp_path / "signers").write_text(signer_line("adopter", "demo-a", public, valid_before=until) + "\n")
    (tmp_path / "text").write_text("adopt")
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "dsv4-carve", str(tmp_path / "text")], check=True
    )

    def check(at: str, namespace: str = "dsv4-carve", principal: str = "adopter:demo-a") -> int:
        command = ["ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "signers"), "-I", principal, "-n", namespace]
        command += ["-s", str(tmp_path / "text.sig"), "-O", f"verify-time={at}"]
        return subprocess.run(command, input=b"adopt", capture_output=True, check=False).returncode

    assert check("20261230Z") == 0
    assert check("20270101Z") != 0
    assert check("20261230Z", namespace="git") != 0
    assert check("20261230Z", principal="runner:demo-a") != 0


def test_trust_comes_from_the_repository_first_and_says_so(tmp_path: Path, private_home: Path) -> None:
    here = make_workspace(tmp_path / "w")
    assert trust_key(user_file(), signer_line("runner", "demo-a", KEY.public))
    assert not trust_key(user_file(), signer_line("runner", "demo-a", KEY.public))
    assert load_trust(here).signer(KEY.public.id, ("runner",), NOON, "x").source == "user"
    assert load_trust(here, user=False).signers == ()
    repository_file(here).write_text(f"adopter:demo-b {LINE}")
    trust_key(repository_file(here), signer_line("runner", "demo-a", KEY.public))
    assert load_trust(here).signer(KEY.public.id, ("runner",), NOON, "x").source == "repository"
    assert len(load_trust(here).signers) == 3
    assert user_file().is_relative_to(private_home)


def test_a_name_that_is_no_principal_is_refused() -> None:
    with pytest.raises(InputError, match="name for a key"):
        signer_line("runner", 'a" evil', KEY.public)


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link(path: Path) -> None:
    path.with_name("elsewhere").write_text("")
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "make",
    [
        a_pipe,
        a_link,
        Path.mkdir,
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text("# text\n", encoding="utf-16"),
        lambda path: path.write_bytes(b"#" * (1 << 20) + b"\n"),
    ],
    ids=["a pipe", "a link", "a folder", "no text", "another encoding", "without end"],
)
def test_the_trust_root_is_a_plain_file_of_text(tmp_path: Path, make: Callable[[Path], object]) -> None:
    root = repository_file(tmp_path)
    root.parent.mkdir()
    make(root)
    with pytest.raises(InputError, match="the file of signers cannot be read") as caught:
        load_trust(tmp_path, user=False)
    assert caught.value.exit_code == 3


def test_a_link_to_nowhere_is_no_empty_trust_root(tmp_path: Path) -> None:
    root = repository_file(tmp_path)
    root.parent.mkdir()
    root.symlink_to("nowhere")
    with pytest.raises(InputError, match="the file of signers cannot be read"):
        load_trust(tmp_path, user=False)


def test_a_users_own_file_may_be_a_link(private_home: Path) -> None:
    a_link(user_file_in(private_home))
    assert load_trust(None) == Trust(())


def user_file_in(home: Path) -> Path:
    path = user_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    assert path.is_relative_to(home)
    return path
