"""Write every gate case as data: ``python -m tests.gates.make_cases [FOLDER]``. The tests read what is committed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import yaml

from runner.gates.base import GateInput
from tests.gates import (
    cases_agreement,
    cases_answered,
    cases_answers,
    cases_by_class,
    cases_changes,
    cases_claims,
    cases_desk,
    cases_engine,
    cases_gpu,
    cases_product,
    cases_quality,
    cases_speculation,
    cases_speed,
    cases_speed_boots,
    cases_speed_metrics,
    cases_speed_text,
    cases_streams,
    cases_traces,
)

FOLDER = Path(__file__).resolve().parent
CASES = {
    "pack": cases_desk.pack,
    "product": cases_product.product,
    "claims": cases_claims.claims,
    "resolved": cases_desk.resolved,
    "engaged": cases_engine.engaged,
    "perturbation": cases_changes.perturbation,
    "watermark": cases_changes.watermark,
    "knock-out": cases_changes.knock_out,
    "parity": cases_desk.parity,
    "kernel-speed": cases_gpu.kernel_speed,
    "kernel-speed@2": cases_gpu.kernel_speed_under_routes,
    "pressure": cases_gpu.pressure,
    "pressure@2": cases_gpu.pressure_above_its_floor,
    "sanitizer": cases_gpu.sanitizer,
    "kld": cases_quality.kld,
    "kld@2": cases_by_class.kld,
    "ppl-prefill@2": cases_by_class.ppl_prefill,
    "ppl-decode@2": cases_by_class.ppl_decode,
    "ppl-prefill": cases_quality.ppl_prefill,
    "ppl-decode": cases_quality.ppl_decode,
    "speed": lambda: [
        *cases_speed.speed(),
        *cases_speed_boots.paired(),
        *cases_speed_boots.short(),
        *cases_speed_text.texts(),
    ],
    "speed@2": cases_speed_metrics.metrics,
    "four-streams": cases_streams.four_streams,
    "needle": cases_answered.needle,
    "kv-window": cases_answered.kv_window,
    "acceptance": cases_speculation.acceptance,
    "greedy-band": cases_speculation.greedy_band,
    "memory": cases_answers.memory,
    "ttft": cases_answers.ttft,
    "sanity": cases_answers.sanity,
    "score": cases_answers.score,
    "vision": cases_answers.vision,
    "agreement": cases_answers.agreement,
    "agreement@2": cases_agreement.agreement,
    "launches": cases_traces.launches,
    "eager-gap": cases_traces.eager_gap,
    "rank-skew": cases_traces.rank_skew,
    "finish": cases_answered.finish,
    "sensitivity": cases_product.sensitivity,
    "restore": cases_desk.restore,
}


def text_of(given: GateInput) -> str:
    """JSON with one window, sample or boot a line, so that two cases can be compared by eye and by diff."""
    lines = ["{"]
    data = given.model_dump(mode="json", exclude_defaults=True)
    for sample, dumped in zip(given.samples, data["samples"], strict=True):
        dumped["measure"] = {"kind": sample.measure.kind} | dumped["measure"]
    for name, value in data.items():
        comma = "" if name == list(data)[-1] else ","
        if isinstance(value, list) and value:
            items = ",\n  ".join(json.dumps(item, ensure_ascii=False) for item in value)
            lines.append(f" {json.dumps(name)}: [\n  {items}\n ]{comma}")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}{comma}")
    return "\n".join([*lines, "}", ""])


def main(root: Path) -> None:
    """Replace all case folders under ``root``."""
    for gate, make in CASES.items():
        shutil.rmtree(root / gate, ignore_errors=True)
        for name, given, status, words, *figures in make():
            folder = root / gate / name
            folder.mkdir(parents=True)
            (folder / "input.json").write_text(text_of(given))
            expected: dict[str, object] = {"status": status, "reason": words}
            expected |= {"figures": figures[0]} if figures else {}
            (folder / "expect.yaml").write_text(yaml.safe_dump(expected, allow_unicode=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
