"""The canon over committed reports of several orders on one seat: what stands, that it ran, and the way back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from runner import canon, decide, ledger
from runner.attest.keys import PrivateKey
from runner.attest.trust import repository_file, signer_line, trust_key
from runner.decide import Desk
from runner.decisions import decisions
from runner.paths import source_root
from tests.runner.records import trust_of
from tests.runner.test_canon import section

KERNEL, LAYER = "20261130-124040-d38bd041", "20261130-093757-37ae9c43"


@pytest.fixture
def committed(tmp_path: Path, demo_adopter: PrivateKey) -> Path:
    """A copy of this repository's signed files, with somebody who may adopt."""
    for folder in ("reports", "canon"):
        shutil.copytree(source_root() / folder, tmp_path / "w" / folder)
    (tmp_path / "w" / "orders").mkdir()
    trust_key(repository_file(tmp_path / "w"), signer_line("adopter", "demo-adopter", demo_adopter.public))
    return tmp_path / "w"


def test_a_recipe_takes_the_seat_from_a_kernel_and_gives_it_back(committed: Path, demo_adopter: PrivateKey) -> None:
    decide.adopt(Desk.open(committed, demo_adopter), KERNEL, "faster kernel")
    kernel = section((committed / canon.CANON).read_text(), "Standing")
    proof = kernel.split("#### Proof of launch")[1].split("####")[0]
    rows = [line for line in proof.splitlines() if line.startswith("| 0 |")]
    assert rows and all("lna2 4590 at 1 row" in row for row in rows), "a kernel proves itself by what its variant ran"
    notes: list[str] = []
    decide.adopt(Desk.open(committed, demo_adopter, note=notes.append), LAYER, "better layer")
    assert notes[1:] == [f"takes the place of run {KERNEL} of order mini-lna2"]
    stands = section((committed / canon.CANON).read_text(), "Standing")
    assert stands.count("\n### ") == 1 and "### mini-overlay-layer on cpu-mini" in stands
    assert f"Took the place of [{KERNEL}]" in stands and "measured on top" not in stands
    proof = stands.split("#### Proof of launch")[1].split("####")[0]
    rows = [line for line in proof.splitlines() if line.startswith("| 0 |")]
    assert rows and all("incumbent" in row and LAYER in row for row in rows)
    known = ledger.load(committed, trust_of(committed))
    newest = next(each for each in decisions(known) if each.report.run == LAYER)
    told = decide.way_back(known, newest.signed.digest)[1]
    assert f"back to run {KERNEL}" in told and "CARVE_VARIANT=lna2" in told and "MADE_PACK" not in told
    decide.adopt(Desk.open(committed, demo_adopter), KERNEL, "the kernel after all")
    known = ledger.load(committed, trust_of(committed))
    newest = decisions(known)[-1]
    told = decide.way_back(known, newest.signed.digest)[1]
    assert f"back to run {LAYER}" in told and "vllm serve MADE_PACK" in told
    assert f"`runner product {LAYER} --to MADE_PACK`" in told
