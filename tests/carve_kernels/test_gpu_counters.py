"""What a table of Nsight Compute says, and when it says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from carve_kernels.desk.gpu import counters
from carve_kernels.desk.gpu.counters import METRICS, by_case

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes_read.sum"
NOISE = "==PROF== Connected to process 1 (/usr/bin/python3)\n==PROF== Profiling routed_experts: 0%....100%\n"
HEAD = f'"ID","Kernel Name","{TIME}","{BYTES}","smsp__inst_executed.sum"\n"","","ns","byte","inst"\n'
ROWS = '"0","routed_experts<2>","17,184","4,718,592","n/a"\n"1","routed_experts<2>","32640.5","18284544","1.5e6"\n'


def test_a_launch_a_line_in_the_order_of_the_cases() -> None:
    found = by_case(NOISE + HEAD + ROWS, ["k2-m1", "k2-m4"])
    assert found == {
        "k2-m1": {"duration_ns": "17184", "bytes_from_memory": "4.71859e06"},
        "k2-m4": {"duration_ns": "32640.5", "bytes_from_memory": "1.82845e07", "warp_instructions": "1.5e06"},
    }


@pytest.mark.parametrize(
    "words", ["", NOISE, "==ERROR== ERR_NVGPUCTRPERM\n", HEAD, NOISE + HEAD + ROWS[: ROWS.index('"1"')]]
)
def test_a_table_that_lacks_a_case_says_nothing(words: str) -> None:
    assert by_case(words, ["k2-m1", "k2-m4"]) is None


def test_a_host_without_the_tool_counts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(counters, "_PLACES", (str(tmp_path / "ncu"),))
    assert counters.run("routed_experts", tmp_path, "routed", 1, bits=[2], rows=[1], folder=tmp_path) is None


def test_a_tool_that_may_not_count_is_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM'\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert counters.run("routed_experts", tmp_path, "routed", 1, bits=[2], rows=[1], folder=tmp_path) is None


def test_what_counts_is_asked_for_by_the_names_that_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "ncu"
    table = HEAD + ROWS.splitlines()[0] + "\n"
    tool.write_text(f"#!/bin/sh\nprintf '%s ' \"$@\" > {tmp_path}/asked\ncat <<'END'\n{table}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = counters.run("routed_experts", tmp_path, "routed", 1, bits=[2], rows=[1], folder=tmp_path)
    assert found == {"k2-m1": {"duration_ns": "17184", "bytes_from_memory": "4.71859e06"}}
    assert ",".join(METRICS) in (tmp_path / "asked").read_text()
