"""The reports of this repository: authentic for whoever has only the repository, down to their evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.attest.trust import load_trust
from runner.paths import source_root
from runner.report import FOLDER_LIMIT
from runner.verify import verify

REPORTS = sorted(path.parent for path in (source_root() / "reports").glob("*/*/report.dsse.json"))


@pytest.mark.parametrize("folder", REPORTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_committed_report_verifies_offline(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARVE_CONFIG", str(tmp_path))  # no key of whoever runs this
    found = verify(folder, load_trust(source_root()), source_root(), deep=True)
    assert found.trust == "repository"
    left_out = {Path(name).stem for name in found.not_kept if name.startswith("evidence/")}
    assert set(found.needs_full_evidence) <= left_out, "what is committed is read again; what did not fit is named"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= FOLDER_LIMIT


def test_the_default_order_and_its_baseline_stand_among_them() -> None:
    assert {"mini-lna2", "mini-baseline"} <= {folder.parent.name for folder in REPORTS}
