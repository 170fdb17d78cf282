"""The drivers that need no engine: a pack that is whole and one that is not, and a desk job's answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from recipe.mini.random_pack import generate
from runner.draw import Draw
from runner.errors import SeatError
from runner.model.boot import BootRecord
from runner.model.desk_measure import ParityMeasure
from runner.model.evidence import RankCounters
from runner.model.plan import PlannedWindow
from runner.model.sample import PackMeasure
from runner.steps.seats import load_manifest
from serve.client.context import WindowContext
from serve.client.registry import driver
from serve.instruments.registry import instrument

CASE = {
    "id": "k2-m4",
    "rows": 4,
    "bits": 2,
    "relative_error": "1e-6",
    "norm_ratio": "1",
    "finite": True,
    "repeat_equal": True,
    "declined": "",
}


@dataclass
class Desk:
    """A desk whose job has one answer."""

    answer: Any
    base_url: str = ""
    traces: Path | None = None
    asked: tuple[str, dict[str, Any]] | None = None

    @property
    def record(self) -> BootRecord:
        return BootRecord(
            id="desk-0000000a",
            planned="desk",
            label="cpu",
            engine={},
            started_at="2026-11-30T12:00:00Z",
            ready_ms=0,
            pid=1,
            ranks=(),
            requested={},
            resolved={},
            kv_tokens=0,
            canary=False,
            ended="running",
        )

    @record.setter
    def record(self, value: BootRecord) -> None:
        raise AttributeError("fixed")

    def call(self, method: str, arguments: dict[str, Any] | None = None) -> list[Any]:
        self.asked = (method, arguments or {})
        return [self.answer]

    def counters(self) -> tuple[RankCounters, ...]:
        return ()

    def switch(self, variant: str, ranks: tuple[int, ...] | None = None) -> None:
        """Nothing runs."""

    def logs(self) -> str:
        return ""

    def stop(self) -> BootRecord:
        return self.record


def context_of(desk: Desk, name: str, pack: Path, **arguments: Any) -> WindowContext:
    window = PlannedWindow(
        id=name,
        boot="desk",
        instrument=f"{name}@1",
        arm="none",
        control=True,
        expects=(),
        arguments=arguments,
        seconds=1,
    )
    draw = Draw(bytes(32), "0" * 64)
    return WindowContext(window, desk, load_manifest("cpu-mini"), draw, pack, "incumbent", pack)


def test_parity_hands_its_arguments_on_and_keeps_the_cases(tmp_path: Path) -> None:
    desk = Desk({"cases": [CASE], "isa": "avx2"})
    context = context_of(desk, "parity", tmp_path, variant="lna2", rows=[4])
    sample = instrument("parity", 1).reduce([driver("parity@1")(context)], context.window)
    seed = context.draw.integer("parity/seed", 1 << 31)
    assert desk.asked == ("parity", {"variant": "lna2", "rows": [4], "seed": seed})
    assert isinstance(sample.measure, ParityMeasure)
    assert [case.id for case in sample.measure.cases] == ["k2-m4"]


def test_a_desk_job_without_cases_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SeatError, match="no cases"):
        driver("parity@1")(context_of(Desk("done"), "parity", tmp_path))


def test_every_fault_of_a_pack_is_kept(tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    generate(pack, layers=2)
    context = context_of(Desk(None), "pack", pack)

    def measured() -> PackMeasure:
        measure = instrument("pack", 1).reduce([driver("pack@1")(context)], context.window).measure
        assert isinstance(measure, PackMeasure)
        return measure

    whole = measured()
    assert whole.faults == ()
    next(pack.glob("*.safetensors")).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    (pack / "tokenizer.json").unlink(missing_ok=True)
    (pack / "tokenizer.json").symlink_to("/nowhere")
    broken = measured()
    assert len(broken.faults) >= 2
    assert broken.payload_digest != whole.payload_digest
