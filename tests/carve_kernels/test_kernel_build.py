"""Builds are keyed by content, safe side by side, and speak with the compiler's words."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from carve_kernels.build import build
from carve_kernels.compiler import read_sources, run_compiler
from carve_kernels.library import Library
from carve_kernels.registry import sources_folder

from runner.errors import InputError, StateError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CARVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return shutil.copytree(sources_folder(), tmp_path / "cpu")


def test_built_once(cache: Path) -> None:
    first = build("knock-out-zero")
    assert first == cache / "build" / first.parent.name / "libknock-out-zero.so"
    stamp = first.stat().st_mtime_ns
    assert build("knock-out-zero").stat().st_mtime_ns == stamp
    assert sorted(path.name for path in first.parent.iterdir()) == [first.name]


def test_source_decides_and_other_sources_do_not(cache: Path, sources: Path) -> None:
    first = build("knock-out-zero", sources)
    (sources / "lna2.cpp").write_text("changed")
    assert build("knock-out-zero", sources) == first
    header = sources / "abi.h"
    header.write_text(header.read_text() + "\n/* changed */\n")
    assert build("knock-out-zero", sources) != first


def test_same_sources_elsewhere_are_the_same_library(cache: Path, sources: Path) -> None:
    assert build("knock-out-zero", sources) == build("knock-out-zero")


def test_two_builders_at_once(cache: Path) -> None:
    script = "from carve_kernels.build import build; print(build('knock-out-decline'))"
    builders = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = {builder.communicate(timeout=120)[0].strip() for builder in builders}
    assert [builder.returncode for builder in builders] == [0, 0]
    (path,) = outputs
    assert Library(Path(path)).describe["name"] == "knock-out-decline"


def test_compiler_speaks(cache: Path, sources: Path) -> None:
    source = sources / "knock_out.cpp"
    source.write_text(source.read_text().replace("return CARVE_OK;", "return CARVE_FINE;"))
    with pytest.raises(InputError) as raised:
        build("knock-out-zero", sources)
    assert "CARVE_FINE" in raised.value.found
    assert raised.value.where == str(source)
    assert not list(cache.rglob("*.so"))


def test_missing_compiler(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(StateError, match="no C\\+\\+ compiler"):
        build("knock-out-zero")


def test_what_is_compiled_is_what_the_digest_names(cache: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit while the compiler runs is in no library: one of other bytes under the digest would stay for good."""
    edited = sources / "abi.h"

    def edit_and_run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[str]:
        edited.write_text("#error edited\n")
        return run_compiler(*arguments, **options)

    monkeypatch.setattr("carve_kernels.build.run_compiler", edit_and_run)
    assert build("knock-out-zero", sources).exists()
    with pytest.raises(InputError, match="#error edited"):
        build("knock-out-zero", sources)


def test_a_file_that_the_digest_does_not_know_is_not_there(cache: Path, sources: Path) -> None:
    (sources / "hidden.h").write_text("#define CARVE_HIDDEN 1\n")
    source = sources / "knock_out.cpp"
    source.write_text('#define HIDDEN "hidden.h"\n#include HIDDEN\n' + source.read_text())
    with pytest.raises(InputError, match=r"hidden\.h: No such file"):
        build("knock-out-zero", sources)


def test_include_closure_follows_quotes(sources: Path) -> None:
    names = set(read_sources(sources, "faulty/half_k.cpp").files)
    assert {"faulty/half_k.cpp", "lna2.cpp", "exports.h", "tickets.h", "exl3.h", "abi.h"} <= names
    assert "incumbent.cpp" not in names


def test_missing_include(sources: Path) -> None:
    (sources / "knock_out.cpp").write_text('#include "../elsewhere.h"\n')
    with pytest.raises(InputError, match="kernel source is missing"):
        read_sources(sources, "knock_out.cpp")


def test_library_brings_no_pool_and_exports_the_abi_only(cache: Path) -> None:
    library = build("lna2")
    needed = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    assert "gomp" not in needed
    assert "stdc++" not in needed
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert {line.split()[2] for line in symbols.splitlines()} == {
        "carve_moe_forward",
        "carve_counters",
        "carve_describe",
    }


def test_an_order_brings_a_variant_of_its_own(cache: Path, sources: Path) -> None:
    text = (sources / "lna2.cpp").read_text().replace('#define CARVE_NAME "lna2"', '#define CARVE_NAME "my-kernel"')
    (sources / "my_kernel.cpp").write_text(text)
    assert Library(build("my-kernel", sources, "my_kernel.cpp")).describe["name"] == "my-kernel"
    with pytest.raises(InputError, match="no such kernel variant"):
        build("my-kernel", sources)
    with pytest.raises(InputError, match="kernel source is missing"):
        build("my-kernel", sources, "another.cpp")
