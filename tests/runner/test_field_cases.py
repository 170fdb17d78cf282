"""Public failures 1, 2 and 4, rebuilt as orders, and files that are no orders at all.

1: helm 6921, drone docs 239, pyyaml 417. 2: psych 583, docker docs 21378, js-yaml 37. 4: pyyaml 235, yq 134.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import runner.yaml_strict
from runner.check import check_file
from runner.errors import InputError
from runner.model.order import GateOrder, KernelOrder, Order, parse_order
from runner.plan_parameters import sealed_parameters
from runner.steps.seats import load_manifest
from runner.yaml_strict import parse, read
from serve.adapters.engine_command import flags
from tests.calls import counted
from tests.runner.flow_orders import gate_order, kernel_order, write_order

PINS = "pack: toy, pins: {vllm: 695e0514, exllamav3: 07320415, plugin: 7320415}"


@pytest.mark.parametrize("loader", [yaml.SafeLoader, getattr(yaml, "CSafeLoader", yaml.SafeLoader)])
def test_case_1_pins_stay_and_thresholds_are_numbers(monkeypatch: pytest.MonkeyPatch, loader: type) -> None:
    monkeypatch.setattr(runner.yaml_strict, "_LOADER", loader)
    text = kernel_order().replace("pack: toy", PINS).replace("margin: 0.005", "margin: 1e-3")
    order = parse_order(text)
    assert isinstance(order, KernelOrder)
    assert order.target.pins == {"vllm": "695e0514", "exllamav3": "07320415", "plugin": "7320415"}
    (gate,) = [request for request in order.gates if request.name == "ppl-decode"]
    assert float(str(sealed_parameters(order, load_manifest("fake"), gate)["margin"])) == 0.001


@pytest.mark.parametrize("text", ["1e+3", ".001", "0x1", "1_0", "0.02 %", "1,5"])
def test_case_1_what_readers_disagree_about_is_no_threshold(tmp_path: Path, text: str) -> None:
    order = kernel_order().replace("margin: 0.005", f"margin: {text}")
    try:
        faults = check_file(write_order(tmp_path, order))
    except InputError as error:
        assert error.where.startswith(f"{tmp_path}/order.yaml:")
    else:
        assert any("margin" in ".".join(map(str, one.fault.path)) for one in faults)


def test_case_2_words_stay_words_down_to_the_launch_line() -> None:
    order = parse_order(
        gate_order().replace("pack: toy", "pack: toy, serve: {moe_decode: off, graphs: on, trust: true}")
    )
    assert isinstance(order, GateOrder)
    assert order.target.serve == {"moe_decode": "off", "graphs": "on", "trust": True}
    assert flags(order.target.serve) == ["--moe-decode", "off", "--graphs", "on", "--trust"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (gate_order() + "on: {x: 1}\n", "a key that is not a string"),
        (gate_order().replace("languages: [en]", "languages: [no]"), "'en', 'ja' or 'code'"),
        (gate_order().replace("tokens: 8", "tokens: 8:30"), "whole number"),
        (gate_order().replace("block_seconds: 1", "block_seconds: 8:30"), "read differently by different YAML readers"),
        (gate_order().replace("pack: toy", "pack: toy, shapes_fixed: yes"), "expected true or false"),
    ],
)
def test_case_2_a_word_in_the_wrong_place_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_order(text, "order.yaml")
    assert words in str(caught.value)
    assert caught.value.where.startswith("order.yaml:")


def bomb() -> bytes:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    names = "abcdefgh"
    for before, name in itertools.pairwise(names):
        lines.append(f"{name}: &{name} [" + ", ".join([f"*{before}"] * 9) + "]")
    return "\n".join(lines).encode()


def many_faults() -> bytes:
    return gate_order().encode() + b"".join(b"extra%d: 1\n" % number for number in range(9000))


HOSTILE = {
    "aliases": (bomb(), "values once aliases are written out"),
    "a cycle": (b"a: &a {self: *a}\n", "a cycle"),
    "flow nesting": (b"a: " + b"[" * 400_000, "nest"),
    "block nesting": (b"\n".join(b" " * depth + b"a:" for depth in range(900)), "nest"),
    "mapping keys": (b"{" * 100_000, "nest"),
    "junk": (bytes(range(256)) * 1000, "control byte 0x00"),
    "nulls": (b"\0" * 400_000, "control byte 0x00"),
    "Windows line ends": (gate_order().replace("\n", "\r\n").encode(), "carriage returns"),
    "a byte order mark": (b"\xef\xbb\xbf" + gate_order().encode(), "byte order mark"),
    "UTF-16": (gate_order().encode("utf-16"), "the file is UTF-16"),
    "Latin-1": (gate_order().replace("order\n", "ordér\n").encode("latin-1"), "not UTF-8"),
    "Shift JIS": (gate_order().replace("A small order", "小さい注文").encode("shift_jis"), "not UTF-8"),
    "nothing": (b"", "empty"),
    "a list": (b"- 1\n", "valid"),
    "one word": (b"x" * 400_000, "valid"),
    "one long key": (b"x" * 400_000 + b": 1", "not allowed in this context"),
    "very many values": (b"a: [" + b"1," * 200_000 + b"]", "values once aliases are written out"),
    "very many faults": (many_faults(), "Extra inputs"),
    "very many anchors": (b"".join(b"k%d: &a%d x\n" % (n, n) for n in range(20_000)), "values once aliases"),
}


@dataclass(frozen=True)
class Told:
    """What ``runner check`` came to."""

    code: int
    said: str
    calls: int
    peak: int
    """Memory in KiB."""


CHECK = """
import sys
from pathlib import Path
from runner.cli import run
from tests.calls import counted
with counted() as calls:
    code = run(["check", *sys.argv[1:]])
sys.stdout.flush()
peak = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(code, calls.count, peak)
"""
"""The peak is read inside: a process that was just started is charged with what its parent held."""


def told(*paths: Path) -> Told:
    """One call of ``runner check`` over all ``paths``, in a process of its own."""
    command = [sys.executable, "-c", CHECK, *map(str, paths)]
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=True
    )
    said, _, figures = ended.stdout.rstrip("\n").rpartition("\n")
    code, calls, peak = figures.split()
    return Told(int(code), said, int(calls), int(peak))


def places() -> dict[str, Path]:
    return {name: Path(f"{name.replace(' ', '-')}.yaml") for name in HOSTILE}


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """All hostile files in one call, with a good one at the end."""
    folder = tmp_path_factory.mktemp("hostile")
    for name, place in places().items():
        (folder / place).write_bytes(HOSTILE[name][0])
    good = write_order(folder, gate_order())
    return folder, told(*(folder / place for place in places().values()), good)


CHECKED = 3_000_000
"""Calls of one good order's check, most of them imports."""


def test_files_that_are_no_orders_take_no_time_and_no_memory(all_of_them: tuple[Path, Told]) -> None:
    folder, found = all_of_them
    assert found.code == 3
    assert f"{folder}/order.yaml: good" in found.said.splitlines()[-1]
    assert "Traceback" not in found.said
    assert len(found.said) < 20_000
    assert found.calls < CHECKED + 6 * sum(len(data) for data, _ in HOSTILE.values())
    assert found.peak < 100 * 1024


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_order_says_why_and_where(name: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_bytes(HOSTILE[name][0])
    assert HOSTILE[name][1] in str(caught.value)
    assert caught.value.where.startswith("order.yaml")


def parse_bytes(data: bytes) -> None:
    """As an order, with work that grows no faster than the file."""
    with counted() as calls:
        try:
            parse(data, "order.yaml").validate(Order)
        finally:
            assert calls.count < 10_000 + 6 * len(data)


def test_a_hundred_megabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "order.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 << 20)
    found = told(path)
    assert (found.code, "too large" in found.said) == (3, True)
    assert found.calls < CHECKED
    assert found.peak < 100 * 1024


def test_what_never_ends_is_not_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match="no plain file"):
            read(path)


def test_one_honest_alias_still_loads(tmp_path: Path) -> None:
    text = gate_order() + "capability: [&gpu {name: gpu, available: unknown}]\nscope: {includes: [&same here, *same]}\n"
    assert check_file(write_order(tmp_path, text)) == ()
