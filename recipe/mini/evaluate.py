"""Held-out perplexity, needles and draft agreement of a training module, and the bigram model it must beat."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from recipe.mini.batches import NeedleForm, Tokens
from recipe.mini.model import MiniModel
from recipe.mini.needles import DIGITS, LANGUAGES


@contextmanager
def _inference(model: MiniModel) -> Iterator[torch.device]:
    """No gradients, no dropout, bfloat16 matrix products on a GPU; gives the model's device."""
    model.eval()
    device: torch.device = model.embed_tokens.weight.device
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        yield device


def perplexity(model: MiniModel, documents: Sequence[Tokens], *, at_once: int = 16) -> float:
    """exp of the mean negative log-likelihood of every token but each document's first."""
    total = count = 0.0
    with _inference(model) as device:
        for start in range(0, len(documents), at_once):
            group = documents[start : start + at_once]
            tokens = torch.zeros(len(group), max(map(len, group)), dtype=torch.long)
            mask = torch.zeros(tokens.shape)
            for row, document in enumerate(group):
                tokens[row, : len(document)] = torch.from_numpy(document.astype(np.int64))
                mask[row, 1 : len(document)] = 1.0
            tokens, mask = tokens.to(device), mask.to(device)
            logits = model.lm_head(model(tokens))[:, :-1].float()
            loss = functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
            total += float((loss * mask[:, 1:]).sum())
            count += float(mask.sum())
    return math.exp(total / count)


def needle_rows(
    haystacks: dict[str, Tokens], forms: dict[str, NeedleForm], digit: Tokens, *, length: int, depths: int, seed: int
) -> Tensor:
    """Token rows [3 * depths, length]: held-out text, one needle at evenly spaced depths, question and answer last."""
    random = np.random.default_rng(seed)
    rows = []
    for language in LANGUAGES:
        form, text = forms[language], haystacks[language]
        room = length - form.statement_length - form.question_length
        if not 0 < room < len(text):
            raise ValueError(f"a {language} needle of {length} tokens does not fit a text of {len(text)} tokens")
        for index in range(depths):
            start = int(random.integers(0, len(text) - room))
            depth = round(room * index / max(1, depths - 1))
            hay, digits = text[start : start + room], digit[random.integers(0, 10, DIGITS)]
            parts = (hay[:depth], form.before, digits, form.after, hay[depth:], form.question, digits)
            rows.append(np.concatenate(parts).astype(np.int64))
    return torch.from_numpy(np.stack(rows))


def needles_found(model: MiniModel, rows: Tensor, *, at_once: int = 16) -> float:
    """Share of rows whose last ``DIGITS`` tokens greedy decoding would give (equal to one teacher-forced pass)."""
    found = 0
    with _inference(model) as device:
        for start in range(0, len(rows), at_once):
            tokens = rows[start : start + at_once].to(device)
            logits = model.lm_head(model(tokens)[:, -DIGITS - 1 : -1])
            found += int((logits.argmax(-1) == tokens[:, -DIGITS:]).all(1).sum())
    return found / len(rows)


def draft_agreement(model: MiniModel, documents: Sequence[Tokens]) -> float:
    """Share of positions where the draft layer's first choice is the model's own first choice for the same token."""
    agreed = count = 0
    with _inference(model) as device:
        for document in documents:
            tokens = torch.from_numpy(document.astype(np.int64))[None].to(device)
            hidden = model(tokens)
            draft = model.lm_head(model.draft_hidden(tokens, hidden)).argmax(-1)
            own = model.lm_head(hidden[:, 1:]).argmax(-1)
            agreed += int((draft == own).sum())
            count += own.numel()
    return agreed / count


def bigram_perplexity(text: Sequence[Tokens], documents: Sequence[Tokens], vocabulary: int) -> float:
    """Perplexity of the best of several interpolated bigram models: (c(a, b) + s p(b)) / (c(a) + s).

    ``s`` is chosen on the held-out documents themselves, in the bigram model's favour.
    """
    pairs = np.zeros(vocabulary * vocabulary, np.int64)
    for stream in text:
        pairs += np.bincount(stream[:-1].astype(np.int64) * vocabulary + stream[1:], minlength=len(pairs))
    table = pairs.reshape(vocabulary, vocabulary).astype(np.float64)
    single = table.sum(0) + 0.5
    single /= single.sum()
    seen = table.sum(1)
    best = math.inf
    for strength in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0):
        total = count = 0.0
        for document in documents:
            first, second = document[:-1].astype(np.int64), document[1:].astype(np.int64)
            chance = (table[first, second] + strength * single[second]) / (seen[first] + strength)
            total -= float(np.log(chance).sum())
            count += len(first)
        best = min(best, math.exp(total / count))
    return best
