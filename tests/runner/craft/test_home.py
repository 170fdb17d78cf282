"""What a session's home is given: files of the caller's home, and nothing that has to stay hidden."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from runner.craft.dispatch import dispatch
from runner.craft.home import furnish, hidden_from, require_home
from runner.errors import InputError
from runner.model.attempt import Attempt
from runner.paths import config_home
from tests.runner.craft.bench_kit import Kit


@pytest.fixture
def caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose keys lie where they lie by default."""
    home = tmp_path / "caller"
    (home / ".config" / "dsv4-carve").mkdir(parents=True)
    (home / ".config" / "dsv4-carve" / "key").write_text("secret")
    (home / ".config" / "agent").mkdir()
    (home / ".config" / "agent" / "token").write_text("mine")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CARVE_CONFIG", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert config_home() == home / ".config" / "dsv4-carve"
    return home


def hidden(tmp_path: Path) -> tuple[Path, ...]:
    return hidden_from(tmp_path / "checkout", tmp_path / "workspace")


@pytest.mark.parametrize("entry", [".config", ".config/dsv4-carve", ".config/dsv4-carve/key", "link", "linked", "."])
def test_the_keys_are_not_given(caller: Path, tmp_path: Path, entry: str) -> None:
    (caller / "link").symlink_to(".config")
    (caller / "linked" / "deep").mkdir(parents=True)
    (caller / "linked" / "deep" / "way").symlink_to(caller / ".config" / "dsv4-carve" / "key")
    with pytest.raises(InputError, match=r"has to stay hidden|not below the home"):
        require_home("crafter", (entry,), hidden(tmp_path))


@pytest.mark.parametrize("entry", ["../x", ".agent/../../x", "/etc/hostname", "~/.agent", "/"])
def test_only_paths_below_the_home_are_taken(caller: Path, tmp_path: Path, entry: str) -> None:
    with pytest.raises(InputError, match="not below the home folder") as caught:
        require_home("crafter", (entry,), hidden(tmp_path))
    assert (caught.value.where, caught.value.found) == ("crafter: home", entry)


def test_an_agents_own_files_are_copied(caller: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "dotfiles"
    elsewhere.mkdir()
    (elsewhere / "settings").write_text("kept in a repository")
    (caller / ".agent").symlink_to(elsewhere)
    (elsewhere / "round").symlink_to(elsewhere)
    (elsewhere / "dead").symlink_to("nowhere")
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(elsewhere / "socket"))
    entries = (".config/agent", ".agent", ".not-there")
    require_home("crafter", entries, hidden(tmp_path))
    target = tmp_path / "home"
    furnish(target, entries)
    assert (target / ".config" / "agent" / "token").read_text() == "mine"
    assert [path.name for path in (target / ".agent").iterdir()] == ["settings"]


def test_a_dispatch_looks_at_the_home_first(kit: Kit, caller: Path) -> None:
    kit.crew("honest")
    crew = kit.workspace / "orders" / "people" / "craftspeople.yaml"
    text = crew.read_text()
    crew.write_text(text.replace("    limits:", "    home: [.config]\n    limits:"))
    with pytest.raises(InputError, match="has to stay hidden"):
        dispatch(kit.given())
    crew.write_text(text.replace("    limits:", "    home: [.config/agent]\n    limits:"))
    made = dispatch(kit.given())
    assert isinstance(made, Attempt)
    assert made.commit, made.findings
    assert (caller / ".config" / "agent" / "token").read_text() == "mine"
