"""A small checkout, an order on the fake seat whose candidate is one word, and a crew of test programs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.craft import sandbox
from runner.craft.dispatch import Dispatch
from runner.steps.state import Silent
from tests.runner.craft import people
from tests.runner.flow_orders import QUALITY, kernel_order

SANDBOXES = ("none", *(["bubblewrap"] if sandbox.version() else []))
"""Every claim is tested without a sandbox; with one too where this machine has it."""
LIMITS = "{wall_seconds: 120, output_bytes: 1000000, disk_bytes: 20000000}"


@dataclass(frozen=True)
class Kit:
    """Folders of one test."""

    checkout: Path
    workspace: Path
    order: Path

    def given(self, name: str = "crafter") -> Dispatch:
        """The order given to somebody."""
        return Dispatch(self.order, name, self.workspace, self.checkout, Silent())

    def crew(self, deed: str, *arguments: object, limits: str = LIMITS) -> None:
        """``crafter`` does ``deed``."""
        words = ", ".join(f'"{word}"' for word in (sys.executable, people.__file__, deed, *arguments))
        path = self.workspace / "orders" / "people" / "craftspeople.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "schema_version: 1\ncraftspeople:\n  crafter:\n    kind: agent\n"
            f"    argv: [{words}]\n    readable: [{Path(people.__file__).parent}]\n    limits: {limits}\n"
            "  maker: {kind: person}\n"
        )


def order_text(allowed: str = "kernels/cpu/toy.txt", gates: str = QUALITY) -> str:
    """A kernel order whose source names the toy that the fake seat is to be."""
    more = f"  sources: [kernels/cpu/toy.txt]\n  files_allowed: [{allowed}]\n"
    art = "design: {prior_art: [{what: the toy as it is, where: kernels/cpu/toy.txt, verdict: made anew}]}\n"
    return art + kernel_order(gates=gates).replace("  strict: 0\n", "  strict: 0\n" + more)


def git(folder: Path, *words: str) -> str:
    """One git command of a test."""
    names = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_kit(home: Path) -> Kit:
    """A small committed checkout beside the workspace of the fixture ``home``."""
    checkout = home / "checkout"
    texts = {
        "kernels/cpu/toy.txt": "silent-fallback\n",
        "runner/gates/speed.py": "LIMIT = 1\n",
        **{f"{name}/__init__.py": "" for name in ("runner", "serve", "recipe", "kernels/carve_kernels")},
    }
    for name, text in texts.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
    git(checkout, "init", "--quiet")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "start")
    order = home / "workspace" / "orders" / "small-lna2.yaml"
    order.write_text(order_text())
    return Kit(checkout, home / "workspace", order)


@pytest.fixture
def kit(home: Path) -> Kit:
    """See :func:`make_kit`."""
    return make_kit(home)


@pytest.fixture(params=SANDBOXES)
def walls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the sandbox of this machine, and as if there were none."""
    if request.param == "none":
        monkeypatch.setattr(sandbox, "version", lambda: "")
    return str(request.param)
