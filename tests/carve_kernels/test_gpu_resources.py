"""The table of registers and spills: names that stay the same, and what counts as worse."""

from __future__ import annotations

import yaml
from carve_kernels.cuda.build import ARCHITECTURES
from carve_kernels.cuda.registry import VARIANTS, sources_folder
from carve_kernels.cuda.resources import TABLE, TUNED, Table, readable, regressions, wanted
from carve_kernels.registry import Role

NAMES = {
    "_ZN5carve40_GLOBAL__N__6438d896_8_dense_cu_d0ae23fc12dense_kernelILi6ELNS_8CodebookE1ELi2EEEvNS0_6LaunchE": (
        "dense_kernel<6,1,2>"
    ),
    "_ZN5carve14routed_expertsILi2ELNS_8CodebookE1EEEvNS_7ProblemE": "routed_experts<2,1>",
    "_Z8read_allPK5uint4mPj": "_Z8read_allPK5uint4mPj",
}
ROW = {"registers": 64, "spill_bytes": 0}


def table(**changes: int) -> Table:
    return {"dense sm_90a": {"dense_kernel<6,1,1>": ROW | changes}}


def test_names_lose_what_changes_from_build_to_build() -> None:
    assert {mangled: readable(mangled) for mangled in NAMES} == NAMES


def test_more_registers_or_spills_are_a_regression() -> None:
    assert regressions(table(), table()) == []
    assert regressions(table(), table(registers=60)) == []
    (spilled,) = regressions(table(), table(spill_bytes=8))
    assert "has 8 spill_bytes, recorded are 0" in spilled
    assert len(regressions(table(), table(registers=72, spill_bytes=8))) == 2


def test_a_kernel_that_the_table_does_not_know_is_a_regression() -> None:
    (unknown,) = regressions({"dense sm_90a": {}}, table())
    assert "dense_kernel<6,1,1> is not in the table" in unknown


def test_a_build_that_the_table_does_not_know_is_a_regression() -> None:
    assert regressions({}, table()) == ["dense sm_90a is not in the table"]


def test_every_candidate_is_compiled_in_full_for_the_tuned_architecture() -> None:
    """The tuned instantiations of a kernel say nothing of the text for any other K or codebook."""
    checked = set(wanted(full=False))
    assert {(name, TUNED) for name, variant in VARIANTS.items() if variant.role is Role.CANDIDATE} <= checked
    assert {("lna2-brief", architecture) for architecture in ARCHITECTURES if architecture != TUNED} <= checked
    assert checked <= set(wanted(full=True))


def test_the_committed_table_has_every_build_that_is_checked() -> None:
    recorded = yaml.safe_load((sources_folder() / TABLE).read_text(encoding="utf-8"))
    assert {f"{name} {architecture}" for name, architecture in wanted(full=False)} <= recorded.keys()
    assert all(rows for rows in recorded.values())


def test_every_candidate_has_its_wrong_build() -> None:
    names = [name for name, variant in VARIANTS.items() if variant.role is Role.CANDIDATE]
    assert all(f"{name}-watermark" in VARIANTS for name in names)
