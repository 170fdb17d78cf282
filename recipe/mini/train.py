"""Train the small model on one GPU within a time budget: ``python -m recipe.mini.train DATA OUT --seconds 420``.

First a self-check runs the exact code path (steps at each length, evaluation, export, reload in transformers) and stops
with exit code 3 and a message if anything is off. Then the model is trained from the seed; every minute the best
checkpoint so far is written to OUT as ``checkpoint.tar.NN`` pieces, with ``log.json`` beside it, so that a cut run
leaves something. Best means: needles found at every length, then the lowest held-out perplexity.
"""

import argparse
import copy
import json
import lzma
import math
import queue
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from recipe.mini.batches import Batches, NeedleForm, Tokens
from recipe.mini.encode import encode, needle_forms, read_texts
from recipe.mini.evaluate import (
    bigram_perplexity,
    draft_agreement,
    needle_rows,
    needles_found,
    perplexity,
)
from recipe.mini.export import export
from recipe.mini.model import MiniModel, Shape
from recipe.mini.needles import LANGUAGES

PIECE_BYTES = 15_000_000


@dataclass(frozen=True)
class Phase:
    """``rows`` windows of ``length`` tokens a step, from the share ``start`` of the time budget on."""

    start: float
    rows: int
    length: int


@dataclass(frozen=True)
class Settings:
    """Everything that decides a run, beside the data and the clock."""

    seconds: float = 420.0
    seed: int = 20_260
    shape: Shape = field(default_factory=Shape)
    phases: tuple[Phase, ...] = (Phase(0.0, 64, 1024), Phase(0.6, 28, 2304))
    share: dict[str, float] = field(default_factory=lambda: {"en": 0.42, "ja": 0.33, "code": 0.25})
    needles: float = 0.35
    rate: float = 2e-3
    last_rate: float = 0.02
    warm_up: int = 200
    decay: float = 0.1
    dropout: float = 0.05
    draft_weight: float = 0.3
    balance: float = 1e-3
    noise: float = 0.2
    noise_from: float = 0.5
    evaluate_every: float = 25.0
    needle_lengths: tuple[int, ...] = (512, 1024, 2048)
    needle_depths: int = 12
    needle_bar: float = 0.95


@dataclass(frozen=True)
class Data:
    """Token streams, held-out documents and needle forms."""

    text: dict[str, Tokens]
    held_out: dict[str, list[Tokens]]
    forms: dict[str, NeedleForm]
    digit: Tokens
    vocabulary: int

    def needle_rows(self, length: int, depths: int, seed: int = 1) -> Tensor:
        haystacks = {language: np.concatenate(found) for language, found in self.held_out.items()}
        return needle_rows(haystacks, self.forms, self.digit, length=length, depths=depths, seed=seed)


def load(folder: Path) -> Data:
    """Read what ``encode.py`` wrote."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer" / "tokenizer.json"))
    forms, digit = needle_forms(tokenizer)
    text, held_out = {}, {}
    for language in LANGUAGES:
        text[language] = np.frombuffer(lzma.decompress((folder / f"{language}.u16.xz").read_bytes()), "<u2")
        held_out[language] = [
            encode(tokenizer, [document])[:-1] for document in read_texts(folder / "held_out" / f"{language}.jsonl")
        ]
    return Data(text, held_out, forms, digit, tokenizer.get_vocab_size())


class Prefetch:
    """Draws batches in a thread and hands them over as tensors on the device; ``close`` ends the thread."""

    def __init__(self, batches: Batches, phase: Phase, device: torch.device) -> None:
        self.batches, self.phase, self.device = batches, phase, device
        self.ready: queue.Queue[tuple[Tensor, Tensor]] = queue.Queue(8)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _fill(self) -> None:
        while not self.stopped.is_set():
            batch = self.batches.draw(self.phase.rows, self.phase.length)
            pair = (torch.from_numpy(batch.tokens), torch.from_numpy(batch.weights))
            if self.device.type == "cuda":
                pair = (pair[0].pin_memory(), pair[1].pin_memory())
            while not self.stopped.is_set():
                try:
                    self.ready.put(pair, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def __next__(self) -> tuple[Tensor, Tensor]:
        tokens, weights = self.ready.get(timeout=60)
        return tokens.to(self.device, non_blocking=True), weights.to(self.device, non_blocking=True)

    def close(self) -> None:
        self.stopped.set()
        self.thread.join()


class Trainer:
    """Model, optimiser and one step of training."""

    def __init__(self, settings: Settings, device: torch.device) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.device = settings, device
        self.model = MiniModel(settings.shape, dropout=settings.dropout).to(device)
        matrices = [p for n, p in self.model.named_parameters() if p.dim() > 1 and not n.endswith("router")]
        others = [p for n, p in self.model.named_parameters() if p.dim() == 1 or n.endswith("router")]
        groups = [{"params": matrices, "weight_decay": settings.decay}, {"params": others, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=settings.rate, betas=(0.9, 0.95), fused=device.type == "cuda")
        self.steps = 0

    def rate(self, progress: float) -> float:
        """Warm-up by steps, then a cosine over the time budget down to ``last_rate`` of the peak."""
        low = self.settings.last_rate
        cosine = low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return self.settings.rate * min(1.0, (self.steps + 1) / self.settings.warm_up) * cosine

    def _loss(self, hidden: Tensor, tokens: Tensor, weights: Tensor) -> Tensor:
        logits = self.model.lm_head(hidden).float()
        each = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
        return (each * weights.flatten()).sum() / weights.sum()

    def step(self, tokens: Tensor, weights: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """One update; returns the two losses (next token, draft) still on the device."""
        settings = self.settings
        self.model.train()
        rate = self.rate(progress)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        noise = float(np.random.default_rng((settings.seed, self.steps)).uniform(0, settings.noise))
        for experts in self.model.experts():
            experts.noise = noise if progress >= settings.noise_from else 0.0
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden = self.model(tokens)
            loss = self._loss(hidden[:, :-1], tokens[:, 1:], weights[:, 1:])
            draft_states = self.model.draft_hidden(tokens, hidden)[:, :-1]
            draft = self._loss(draft_states, tokens[:, 2:], weights[:, 2:])
        self.optimiser.zero_grad(set_to_none=True)
        (loss + settings.draft_weight * draft).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        with torch.no_grad():
            for experts in self.model.experts():
                offset = torch.sign(experts.load.mean() - experts.load)
                experts.correction += settings.balance * (rate / settings.rate) * offset
                experts.load.zero_()
        self.steps += 1
        return loss.detach(), draft.detach()


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


def _say(begun: float, text: str) -> None:
    print(f"[{time.monotonic() - begun:6.1f} s] {text}", flush=True)


def _schedule(settings: Settings, end: float, begun: float) -> Iterator[tuple[float, Phase]]:
    """(progress, phase) until the budget is used up."""
    while (now := time.monotonic()) < end:
        progress = (now - begun) / (end - begun)
        yield progress, [phase for phase in settings.phases if phase.start <= progress][-1]


def train(data_folder: Path, out: Path, settings: Settings, *, deadline: float = math.inf) -> dict[str, Any]:
    """Self-check, training, final evaluation. ``deadline`` is in seconds from the call; returns the log."""
    process_begun = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load(data_folder)
    if data.vocabulary != settings.shape.vocab_size:
        raise RuntimeError(f"tokenizer has {data.vocabulary} entries, the model {settings.shape.vocab_size}")
    log: dict[str, Any] = {"settings": asdict(settings), "device": str(device), "torch": torch.__version__}
    log["tokens"] = {language: len(stream) for language, stream in data.text.items()}
    _say(process_begun, f"tokens {log['tokens']}")
    log["self_check"] = self_check(data, settings, device)
    _say(process_begun, f"self-check passed: {log['self_check']}")
    log["bigram_perplexity"] = {
        language: bigram_perplexity(list(data.text.values()), data.held_out[language], data.vocabulary)
        for language in LANGUAGES
    }
    _say(process_begun, f"bigram perplexity {log['bigram_perplexity']}")

    trainer = Trainer(settings, device)
    batches = Batches(data.text, data.forms, data.digit, share=settings.share, needles=settings.needles, seed=settings.seed)
    begun = time.monotonic()
    end = min(begun + settings.seconds, process_begun + deadline - 25)
    best: tuple[bool, float] = (False, -math.inf)
    kept = copy.deepcopy(trainer.model.state_dict())
    source: Prefetch | None = None
    evaluated, written, seen = begun, begun, 0
    log["evaluations"] = []

    def assess(phase: Phase) -> None:
        nonlocal best, kept
        result = evaluate(trainer.model, data, settings)
        shown = {key: {k: round(v, 3) for k, v in value.items()} for key, value in result.items()}
        _say(process_begun, f"step {trainer.steps} loss {float(loss):.3f} draft {float(draft):.3f} {shown}")
        if score(result, settings.needle_bar) > best:
            best, kept = score(result, settings.needle_bar), copy.deepcopy(trainer.model.state_dict())
        losses = {"loss": float(loss), "draft_loss": float(draft)}
        entry = {"seconds": time.monotonic() - begun, "step": trainer.steps, "length": phase.length, "tokens": seen}
        log["evaluations"].append(entry | losses | result)

    def write() -> None:
        keeper = MiniModel(settings.shape)
        keeper.load_state_dict(kept)
        write_pieces(keeper, data_folder, out, log)

    for progress, phase in _schedule(settings, end, begun):
        if source is None or source.phase != phase:
            if source:
                source.close()
            source = Prefetch(batches, phase, device)
        loss, draft = trainer.step(*next(source), progress)
        seen += phase.rows * phase.length
        if trainer.steps % 16 == 0 and not math.isfinite(float(loss)):
            raise RuntimeError(f"loss is {float(loss)} at step {trainer.steps}")
        if time.monotonic() - evaluated > settings.evaluate_every:
            assess(phase)
            evaluated = time.monotonic()
        if time.monotonic() - written > 60:
            write()
            written = time.monotonic()
    if source is None:
        raise RuntimeError("no time was left to train")
    source.close()
    assess(phase)

    trainer.model.load_state_dict(kept)
    final = evaluate(trainer.model, data, settings)
    final["needles_48_depths"] = {
        str(length): needles_found(trainer.model, data.needle_rows(length, 48, seed=2))
        for length in settings.needle_lengths
    }
    final["draft_agreement"] = {
        language: draft_agreement(trainer.model, documents[:12]) for language, documents in data.held_out.items()
    }
    log["final"] = final
    write()
    _say(process_begun, f"final {final}")
    return log


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
    main()
