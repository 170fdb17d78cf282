"""The whole loop on the CPU seat: parity refuses, an edit of the gate is refused, and the third attempt passes."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.attest.trust import load_trust
from runner.craft.loop import carry_out
from runner.model.verdict import Status
from runner.paths import source_root
from runner.verify import read_report, verify
from tests.runner.craft.bench_kit import Kit, git
from tests.runner.flow_orders import HEAD

pytestmark = pytest.mark.engine

ORDER = """candidate:
  variant: lna2
  sources: [kernels/cpu/lna2.cpp]
  files_allowed: [kernels/cpu/lna2.cpp]
  max_rows: 32
design: {prior_art: [{what: lna2, where: kernels/cpu/lna2.cpp, verdict: made anew}]}
gates:
  - name: parity
  - name: resolved
  - name: engaged
  - {name: kld, parameters: {bound: 0.001}, windows: {documents: 20, tokens: 12, rows: 8}}
  - name: restore
"""


def test_parity_then_an_edit_outside_then_a_pass_on_the_cpu_seat(home: Path) -> None:
    checkout, order = home / "checkout", home / "workspace" / "orders" / "small-smith.yaml"
    git(home, "clone", "--quiet", str(source_root()), str(checkout))
    head = HEAD.format(name="small-smith", kind="kernel", seat="cpu-mini")
    order.write_text(head.replace("pack: toy", "pack: recipe/mini/pack") + ORDER)
    kit = Kit(checkout, home / "workspace", order)
    kit.crew("smith", limits="{wall_seconds: 60}")
    carried = carry_out(kit.given())
    assert carried.code == 0, carried.attempts
    folder, trust = kit.workspace / "reports" / "small-smith" / carried.run, load_trust(kit.workspace)
    assert verify(folder, trust, kit.workspace, deep=True).verdict is Status.PASS
    _, report, _ = read_report(folder, trust)
    assert report.seat.label == "cpu"
    assert report.craft is not None
    one, two, three = report.craft.attempts
    assert one.judged is not None
    assert one.judged.refused["parity"] is Status.FAIL
    assert [finding.kind for finding in two.findings] == ["outside-allowed"]
    assert "runner/gates/parity.py" in two.findings[0].detail
    assert (three.findings, three.changed) == ((), ("kernels/cpu/lna2.cpp",))
