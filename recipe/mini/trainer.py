"""Settings, data, batches ahead of time and one step of training of the small model."""

import lzma
import math
import queue
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from recipe.mini.batches import Batches, NeedleForm, Tokens
from recipe.mini.encode import held_out_tokens, needle_forms
from recipe.mini.evaluate import needle_rows
from recipe.mini.model import MiniModel, Shape
from recipe.mini.needles import LANGUAGES


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
    text = {
        language: np.frombuffer(lzma.decompress((folder / f"{language}.u16.xz").read_bytes()), "<u2")
        for language in LANGUAGES
    }
    held_out = held_out_tokens(tokenizer, folder / "held_out")
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
