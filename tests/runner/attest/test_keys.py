"""Keys as OpenSSH has them, private and never in a workspace."""

from __future__ import annotations

import os
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.attest import keys
from runner.attest.keys import PrivateKey, PublicKey
from runner.errors import InputError, TrustError
from runner.paths import source_root


def ssh_keygen(*arguments: str | Path) -> str:
    """Run the real thing."""
    return subprocess.run(["ssh-keygen", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def test_the_id_is_what_ssh_keygen_prints(private_home: Path) -> None:
    key = keys.create("demo-id")
    assert ssh_keygen("-l", "-f", private_home / "keys/demo-id.pub").split()[1] == key.public.id
    assert ssh_keygen("-y", "-f", private_home / "keys/demo-id").split()[:2] == key.public.openssh.split()


def test_a_key_of_ssh_keygen_signs_here(tmp_path: Path) -> None:
    ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "demo-own")
    key = keys.load(tmp_path / "demo-own")
    public = PublicKey.from_openssh((tmp_path / "demo-own.pub").read_text().strip(), "demo-own.pub")
    assert public == key.public
    assert public.verify(key.sign(b"text"), b"text")
    assert not public.verify(key.sign(b"text"), b"other")


def test_a_passphrase_is_asked_for(tmp_path: Path) -> None:
    ssh_keygen("-q", "-t", "ed25519", "-N", "open sesame", "-f", tmp_path / "demo-locked")
    assert keys.load(tmp_path / "demo-locked", lambda: b"open sesame").public.id.startswith("SHA256:")
    for wrong in (None, lambda: b"open barley"):
        with pytest.raises(InputError, match="passphrase"):
            keys.load(tmp_path / "demo-locked", wrong)


def test_only_the_owner_can_read_a_new_key(private_home: Path) -> None:
    old = os.umask(0)
    try:
        keys.create("demo-open")
    finally:
        os.umask(old)
    assert stat.S_IMODE((private_home / "keys/demo-open").stat().st_mode) == 0o600
    assert stat.S_IMODE((private_home / "keys").stat().st_mode) == 0o700
    assert sorted(path.name for path in (private_home / "keys").iterdir()) == ["demo-open", "demo-open.pub"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_key_that_others_reach_is_refused(private_home: Path, mode: int) -> None:
    keys.create("demo-lax")
    (private_home / "keys/demo-lax").chmod(mode)
    with pytest.raises(TrustError, match="0600"):
        keys.load_or_create("demo-lax")


def test_the_first_use_makes_the_key_and_later_ones_keep_it(private_home: Path) -> None:
    first = keys.load_or_create("demo-runner").public
    assert keys.load_or_create("demo-runner").public == first
    with pytest.raises(InputError, match="exists already"):
        keys.create("demo-runner")


def test_everybody_gets_the_same_key_when_many_are_first(private_home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: keys.load_or_create("demo-race").public.id, range(8)))
    assert made == {keys.load(private_home / "keys/demo-race").public.id}


def test_keys_never_lie_in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("orders", "canon"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path / ".config"))
    with pytest.raises(TrustError, match="inside a workspace"):
        keys.load_or_create("demo-runner")


@pytest.mark.parametrize("kind", [["-t", "rsa", "-b", "2048"], ["-t", "ecdsa"]])
def test_other_kinds_of_keys_are_refused(tmp_path: Path, kind: list[str]) -> None:
    ssh_keygen("-q", *kind, "-N", "", "-f", tmp_path / "demo-other")
    with pytest.raises(InputError, match="another type"):
        keys.load(tmp_path / "demo-other")
    with pytest.raises(InputError, match="another type"):
        PublicKey.from_openssh((tmp_path / "demo-other.pub").read_text(), "demo-other.pub")


@pytest.mark.parametrize("text", ["", "ssh-ed25519 AAAA", "no key at all"])
def test_text_that_is_no_key_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "demo-none").write_text(text)
    (tmp_path / "demo-none").chmod(0o600)
    with pytest.raises(InputError):
        keys.load(tmp_path / "demo-none")
    with pytest.raises(InputError):
        PublicKey.from_openssh(text, "demo-none")
    with pytest.raises(InputError, match="no private key"):
        keys.load(tmp_path / "missing")


def test_a_private_key_does_not_show_itself() -> None:
    key = PrivateKey.generate()
    body = b"".join(key.openssh().split(b"\n")[1:-2]).decode()
    assert body[60:100] not in repr(key)


def test_no_private_key_was_ever_committed() -> None:
    marker = "BEGIN OPENSSH " + "PRIVATE KEY"
    found = subprocess.run(
        ["git", "log", "--all", "--oneline", f"-S{marker}"],
        cwd=source_root(),
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout == ""
