"""Write every instrument case as data: ``python -m tests.instruments.make_cases [FOLDER]``.

A case is the traffic of one small window, as a driver records it, and what the instrument must make of it: the whole
measure where it is a measurement (``_pass``), words of a fault or of the error where it is none (``_fail``).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from serve.instruments.registry import all_instruments, instrument
from tests.instruments import (
    cases_answers,
    cases_engine,
    cases_gpu,
    cases_likelihood,
    cases_speculation,
    cases_streams,
    cases_traces,
)
from tests.instruments.build import Case

FOLDER = Path(__file__).resolve().parent
CASES: dict[str, Callable[[], list[Case]]] = {
    "engaged": cases_engine.engaged,
    "finish": cases_streams.finish,
    "kernel-speed": cases_gpu.facts("kernel-speed"),
    "kld": cases_likelihood.kld,
    "knock-out-decline": cases_engine.knock_out_decline,
    "knock-out-zero": cases_engine.shift("knock-out-zero"),
    "kv-window": cases_engine.kv_window,
    "acceptance": cases_speculation.acceptance,
    "agreement": cases_likelihood.agreement,
    "greedy-band": cases_speculation.greedy_band,
    "memory": cases_answers.memory,
    "sanity": cases_answers.sanity,
    "score": cases_answers.score,
    "ttft": cases_answers.ttft,
    "vision": cases_answers.vision,
    "launches": cases_traces.launches,
    "rank-skew": cases_traces.rank_skew,
    "needle": cases_likelihood.needle,
    "pack": cases_engine.pack,
    "parity": cases_engine.parity,
    "perturbation": cases_engine.shift("perturbation"),
    "ppl-decode": cases_likelihood.ppl_decode,
    "ppl-prefill": cases_likelihood.ppl_prefill,
    "pressure": cases_gpu.facts("pressure"),
    "product": cases_engine.product,
    "claims": cases_engine.claims,
    "resolved": cases_engine.resolved,
    "restore": cases_engine.restore,
    "sanitizer": cases_gpu.facts("sanitizer"),
    "sensitivity": cases_likelihood.sensitivity,
    "speed": cases_streams.speed,
    "watermark": cases_engine.shift("watermark"),
}


def main(root: Path) -> None:
    """Replace all case folders under ``root``; the measure of a ``_pass`` case is written to be read and reviewed."""
    assert CASES.keys() == {known.NAME for known in all_instruments()}
    for name, make in CASES.items():
        shutil.rmtree(root / name, ignore_errors=True)
        for case, readings, planned, words in make():
            folder = root / name / case
            folder.mkdir(parents=True)
            dumped = ",".join(f"\n  {one.model_dump_json(exclude_defaults=True)}" for one in readings)
            asked = planned.model_dump_json(exclude_defaults=True)
            (folder / "input.json").write_text(f'{{\n "window": {asked},\n "evidence": [{dumped}\n ]\n}}\n')
            expected: dict[str, Any] = {"fault": words}
            if words is None:
                sample = instrument(name, 1).reduce(readings, planned)
                expected = sample.model_dump(mode="json", include={"measure", "engagement", "faults", "disturbed"})
            (folder / "expect.yaml").write_text(yaml.safe_dump(expected, allow_unicode=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
