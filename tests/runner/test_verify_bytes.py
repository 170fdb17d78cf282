"""A real report of the toy seat: no byte of its envelope, of its evidence or of the ledger can change unseen."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import ledger
from runner.attest.trust import Trust, load_trust
from runner.errors import TrustError
from runner.ledger import SUFFIX
from runner.model.verdict import Status
from runner.paths import source_root
from runner.report import EVIDENCE, REPORT
from runner.verify import verify

GOLDEN = source_root() / "tests" / "records" / "v1"
POSITIONS = 2000


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(GOLDEN, tmp_path_factory.mktemp("spoiled") / "workspace"))


@pytest.fixture(scope="module")
def trust(workspace: Path) -> Trust:
    return load_trust(workspace, user=False)


@pytest.fixture(scope="module")
def report(workspace: Path) -> Path:
    (folder,) = (workspace / "reports" / "fake-lna2").iterdir()
    return folder


def spoiled(path: Path, positions: int) -> Iterator[int]:
    """Change one byte after another, each put back; yields the position, the first and the last among them."""
    data, choose = path.read_bytes(), random.Random(path.name)
    places = {0, len(data) - 1, *choose.sample(range(len(data)), min(positions, len(data)) - 2)}
    try:
        for at in sorted(places):
            changed = bytearray(data)
            changed[at] ^= choose.randrange(1, 256)
            path.write_bytes(changed)
            yield at
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("name", [REPORT, EVIDENCE])
def test_no_byte_of_a_report_can_change(name: str, report: Path, trust: Trust, workspace: Path) -> None:
    assert verify(report, trust, workspace).verdict is Status.PASS
    for _ in spoiled(report / name, POSITIONS):
        with pytest.raises(TrustError):
            verify(report, trust, workspace)
    assert verify(report, trust, workspace).verdict is Status.PASS


def test_no_byte_of_the_ledger_can_change(trust: Trust, workspace: Path) -> None:
    paths = [path for path in sorted(workspace.rglob(f"*{SUFFIX}")) if path.name != REPORT]
    for path in paths:
        digest = path.name.removesuffix(SUFFIX)
        for _ in spoiled(path, POSITIONS // len(paths) + 1):
            with pytest.raises(TrustError, match="has changed"):
                ledger.read_entry(str(path.relative_to(workspace)), workspace, trust)
        assert ledger.read_entry(str(path.relative_to(workspace)), workspace, trust)[0] == digest
