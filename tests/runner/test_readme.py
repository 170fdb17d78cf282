"""The README's walk-through, followed to the letter: its own commands, in its own order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from runner.model.order import KernelOrder, load_order
from runner.paths import source_root

README = (source_root() / "README.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """Text under one heading of the second level."""
    found = re.search(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", README)
    assert found, title
    return found.group(1)


BLOCKS = re.findall(r"(?ms)^```sh\n(.*?)^```$", section("Your own order"))


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[subprocess.CompletedProcess[str]]]:
    """Every block in one shell's environment, with a home of its own; what each one printed."""
    home = tmp_path_factory.mktemp("home")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARVE_", "XDG_"))}
    environment = kept | {"HOME": str(home)}
    steps: list[subprocess.CompletedProcess[str]] = []
    place = source_root()
    for block in BLOCKS:
        script = f'set -e\nexport PATH="{source_root()}/.venv/bin:$PATH"\n{block}pwd > {home}/place\n'
        steps.append(
            subprocess.run(
                ["bash", "-c", script],
                cwd=place,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        )
        place = Path((home / "place").read_text(encoding="utf-8").strip())
    return home, steps


Walked = tuple[Path, list[subprocess.CompletedProcess[str]]]


def test_every_command_of_the_walk_through_works(walked: Walked) -> None:
    assert len(BLOCKS) == 3
    for step in walked[1]:
        assert step.returncode == 0, step.stdout + step.stderr
        assert "Traceback" not in step.stderr


def test_check_first_names_what_is_blank_by_line_and_column(walked: Walked) -> None:
    out = walked[1][0].stdout
    assert re.search(r"orders/my-kernel\.yaml:\d+:\d+: intent\.goal: still to be filled in", out)
    assert "good" not in out


def test_check_then_names_every_reason_that_the_text_names(walked: Walked) -> None:
    out = walked[1][1].stdout
    for field in ("design.prior_art", "primary.pairs", "primary.margin", "intent.expected_gain.high"):
        assert f": {field}: " in out
    assert "10 documents cannot decide" in out
    assert len(out.splitlines()) == 5


def test_the_last_block_ends_in_a_valid_plan_and_a_brief(walked: Walked) -> None:
    home, steps = walked
    assert (home / "carve" / "orders" / "order.schema.json").is_file()
    people = home / "carve" / "orders" / "people"
    named = (people / "craftspeople.yaml").read_text(encoding="utf-8").splitlines()[0].partition("$schema=")[2]
    assert "wall_seconds" in (people / named).read_text(encoding="utf-8")
    out = steps[2].stdout
    assert "orders/my-kernel.yaml: good" in out
    assert "my-kernel on cpu-mini-tp2" in out
    assert "作業指示書: my-kernel" in out
    order = home / "carve" / "orders" / "my-kernel.yaml"
    assert len(order.read_text(encoding="utf-8").splitlines()) < 30
    loaded = load_order(order).order
    assert isinstance(loaded, KernelOrder)


def test_the_walk_through_touches_nothing_but_its_own_workspace(walked: Walked) -> None:
    assert sorted(path.name for path in walked[0].iterdir()) == ["carve", "place"]
    assert not (source_root() / "orders" / "my-kernel.yaml").exists()
