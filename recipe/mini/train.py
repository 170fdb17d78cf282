"""Train the small model on one GPU within a time budget: ``python -m recipe.mini.train DATA OUT --seconds 420``.

First a self-check runs the exact code path (steps at each length, evaluation, export, reload in transformers) and stops
with exit code 3 and a message if anything is off. Then the model is trained from the seed; every minute the best
checkpoint so far is written to OUT as ``checkpoint.tar.NN`` pieces, with ``log.json`` beside it, so that a cut run
leaves something. Best means: needles found at every length, then the lowest held-out perplexity.
"""

import argparse
import copy
import json
import math
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recipe.disk import command
from recipe.mini.batches import Batches
from recipe.mini.evaluate import bigram_perplexity, draft_agreement, needles_found, perplexity
from recipe.mini.export import export
from recipe.mini.model import MiniModel
from recipe.mini.trainer import Data, Phase, Prefetch, Settings, Trainer, load

PIECE_BYTES = 15_000_000
RESERVE_SECONDS = 25.0
WRITE_EVERY_SECONDS = 60.0


def evaluate(model: MiniModel, data: Data, settings: Settings) -> dict[str, Any]:
    """Held-out perplexity a language and needles found a length."""
    ppl = {language: perplexity(model, documents) for language, documents in data.held_out.items()}
    needles = {
        str(length): needles_found(model, data.needle_rows(length, settings.needle_depths))
        for length in settings.needle_lengths
    }
    return {"perplexity": ppl, "needles": needles}


def score(result: dict[str, Any], bar: float) -> tuple[bool, float]:
    """Larger is better: needles above the bar first, then the lower mean log-perplexity."""
    mean = sum(math.log(value) for value in result["perplexity"].values()) / len(result["perplexity"])
    return min(result["needles"].values()) >= bar, -mean


def write_pieces(model: MiniModel, data_folder: Path, out: Path, log: dict[str, Any]) -> None:
    """The checkpoint with its tokenizer as one tar in pieces below 16 MiB, and the log; each file appears whole."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "checkpoint"
        export(model, folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(data_folder / "tokenizer" / name, folder / name)
        archive = Path(scratch) / "checkpoint.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(folder, "checkpoint")
        content = archive.read_bytes()
    for index, start in enumerate(range(0, len(content), PIECE_BYTES)):
        part = out / f".part{index}"
        part.write_bytes(content[start : start + PIECE_BYTES])
        part.replace(out / f"checkpoint.tar.{index:02d}")
    part = out / ".log"
    part.write_text(json.dumps(log, indent=1) + "\n")
    part.replace(out / "log.json")


def differences_from_transformers(model: MiniModel, tokens: Tensor) -> float:
    """Largest absolute logit difference in float32 on the CPU between the module and its export in transformers."""
    from transformers import Glm4MoeForCausalLM  # noqa: PLC0415  (seconds to import; only the self-check needs it)

    own = copy.deepcopy(model).float().cpu().eval()
    with tempfile.TemporaryDirectory() as scratch:
        export(own, Path(scratch), torch.float32)
        theirs = Glm4MoeForCausalLM.from_pretrained(scratch, dtype=torch.float32).eval()
    with torch.no_grad():
        return float((own.lm_head(own(tokens)) - theirs(tokens).logits).abs().max())


def self_check(data: Data, settings: Settings, device: torch.device, *, steps: int = 6) -> dict[str, Any]:
    """The whole path once, small. Raises ``RuntimeError`` with what is off; returns seconds a step at each length."""
    trainer = Trainer(settings, device)
    batches = Batches(data.text, data.forms, data.digit, share=settings.share, needles=settings.needles, seed=7)
    seconds = {}
    for phase in settings.phases:
        source = Prefetch(batches, phase, device)
        for step in range(steps):
            loss, draft = trainer.step(*next(source), progress=0.99 * (step % 2))
            values = (float(loss), float(draft))
            if step == 1:
                begun = time.monotonic()
            if not all(math.isfinite(value) and value < 12 for value in values):
                raise RuntimeError(f"loss {values} at step {step}, length {phase.length}")
        seconds[str(phase.length)] = (time.monotonic() - begun) / (steps - 2)
        source.close()
    result = evaluate(trainer.model, data, settings)
    if not all(math.isfinite(value) for value in result["perplexity"].values()):
        raise RuntimeError(f"held-out perplexity is not finite: {result}")
    tokens = torch.from_numpy(data.held_out["en"][0][None, :200].astype(np.int64))
    report: dict[str, Any] = {"seconds_per_step": seconds, "evaluation": result}
    try:
        difference = differences_from_transformers(trainer.model, tokens)
    except ImportError as error:  # a host without a fitting transformers can still train
        report["difference_from_transformers"] = f"not measured: {error}"
    else:
        if not difference < 1e-3:
            raise RuntimeError(f"the export differs from transformers by {difference}")
        report["difference_from_transformers"] = difference
    if device.type == "cuda":
        report["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return report


class Run:
    """The clock, the log and the best checkpoint of one run."""

    def __init__(self, data_folder: Path, out: Path, settings: Settings, deadline: float) -> None:
        self.started = time.monotonic()
        self.latest = self.started + deadline - RESERVE_SECONDS
        self.data_folder, self.out, self.settings = data_folder, out, settings
        self.log: dict[str, Any] = {"settings": asdict(settings), "torch": torch.__version__, "evaluations": []}
        self.best: tuple[bool, float] = (False, -math.inf)
        self.kept: dict[str, Tensor] = {}

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {text}", flush=True)

    def assess(self, trainer: Trainer, data: Data, entry: dict[str, Any]) -> None:
        """Evaluate, log, and keep the weights if they are the best so far."""
        result = evaluate(trainer.model, data, self.settings)
        self.log["evaluations"].append({"step": trainer.steps} | entry | result)
        shown = {key: {name: round(value, 3) for name, value in found.items()} for key, found in result.items()}
        self.say(f"step {trainer.steps} {entry} {shown}")
        if score(result, self.settings.needle_bar) > self.best:
            self.best = score(result, self.settings.needle_bar)
            self.kept = copy.deepcopy(trainer.model.state_dict())

    def write(self) -> None:
        """Write the best checkpoint so far and the log."""
        if self.kept:
            keeper = MiniModel(self.settings.shape)
            keeper.load_state_dict(self.kept)
            write_pieces(keeper, self.data_folder, self.out, self.log)


def _schedule(settings: Settings, begun: float, end: float) -> Iterator[tuple[float, Phase]]:
    """(progress, phase) until the budget is used up."""
    while (now := time.monotonic()) < end:
        progress = (now - begun) / (end - begun)
        yield progress, [phase for phase in settings.phases if phase.start <= progress][-1]


def _train(run: Run, trainer: Trainer, data: Data) -> None:
    settings, device = run.settings, trainer.device
    batches = Batches(
        data.text, data.forms, data.digit, share=settings.share, needles=settings.needles, seed=settings.seed
    )
    begun = evaluated = written = time.monotonic()
    end = min(begun + settings.seconds, run.latest)
    source: Prefetch | None = None
    entry: dict[str, Any] = {"tokens": 0}
    for progress, phase in _schedule(settings, begun, end):
        if source is None or source.phase != phase:
            if source:
                source.close()
            source = Prefetch(batches, phase, device)
        loss, draft = trainer.step(*next(source), progress)
        entry["tokens"] += phase.rows * phase.length
        if trainer.steps % 16 == 0 and not math.isfinite(float(loss)):
            raise RuntimeError(f"loss is {float(loss)} at step {trainer.steps}")
        if time.monotonic() - evaluated > settings.evaluate_every:
            entry |= {"seconds": time.monotonic() - begun, "length": phase.length}
            run.assess(trainer, data, entry | {"loss": float(loss), "draft_loss": float(draft)})
            evaluated = time.monotonic()
        if time.monotonic() - written > WRITE_EVERY_SECONDS:
            run.write()
            written = time.monotonic()
    if source is None:
        raise RuntimeError("no time was left to train")
    source.close()
    entry |= {"seconds": time.monotonic() - begun, "length": phase.length}
    run.assess(trainer, data, entry | {"loss": float(loss), "draft_loss": float(draft)})


def train(data_folder: Path, out: Path, settings: Settings, *, deadline: float = math.inf) -> dict[str, Any]:
    """Self-check, training, final evaluation; returns the log.

    ``deadline`` is in seconds from the call; training is cut so that everything fits. Raises ``RuntimeError`` when the
    self-check fails, the tokenizer does not fit the shape, or the loss is no longer finite.
    """
    run = Run(data_folder, out, settings, deadline)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(data_folder)
    if data.vocabulary != settings.shape.vocab_size:
        raise RuntimeError(f"tokenizer has {data.vocabulary} entries, the model {settings.shape.vocab_size}")
    run.log["device"] = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    run.log["tokens"] = {language: len(stream) for language, stream in data.text.items()}
    run.log["self_check"] = self_check(data, settings, device)
    run.say(f"self-check passed: {run.log['self_check']}")
    streams = list(data.text.values())
    run.log["bigram_perplexity"] = {
        language: bigram_perplexity(streams, documents, data.vocabulary)
        for language, documents in data.held_out.items()
    }
    run.say(f"bigram perplexity {run.log['bigram_perplexity']}")

    trainer = Trainer(settings, device)
    _train(run, trainer, data)
    trainer.model.load_state_dict(run.kept)
    final = evaluate(trainer.model, data, settings)
    final["needles_48_depths"] = {
        str(length): needles_found(trainer.model, data.needle_rows(length, 48, seed=2))
        for length in settings.needle_lengths
    }
    final["draft_agreement"] = {
        language: draft_agreement(trainer.model, documents[:12]) for language, documents in data.held_out.items()
    }
    run.log["final"] = final
    run.write()
    run.say(f"final {final}")
    return run.log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=Settings.seconds)
    parser.add_argument("--deadline", type=float, default=math.inf, help="whole run, seconds; training is cut to fit")
    arguments = parser.parse_args()
    try:
        train(arguments.data, arguments.out, Settings(seconds=arguments.seconds), deadline=arguments.deadline)
    except RuntimeError as error:
        print(f"stopped: {error}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    sys.exit(command(main))
