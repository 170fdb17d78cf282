"""Teacher forcing: ``--logits-processors serve.witness.force:Force`` makes each step emit the given token.

A request carries ``vllm_xargs: {"force_ids": [...]}``; step ``n`` then yields ``force_ids[n]`` whatever the model says,
while the logprobs in the answer stay the model's own (vLLM takes them before any processor). With a one-token prompt
every step has exactly as many rows as there are requests, so perplexity is measured on the decode path.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

ARGUMENT = "force_ids"


class Force(LogitsProcessor):
    """Forces the next token of each request that brings a list."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """ValueError (HTTP 400) unless the list is of non-negative whole numbers and long enough."""
        ids = _ids(sampling_params)
        if ids is None:
            return
        if not isinstance(ids, list) or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
            raise ValueError(f"{ARGUMENT} must be a list of token ids")
        if sampling_params.max_tokens is None or sampling_params.max_tokens > len(ids):
            raise ValueError(f"{ARGUMENT} holds {len(ids)} ids for max_tokens {sampling_params.max_tokens}")

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self.requests: dict[int, tuple[list[int], list[int]]] = {}
        """Row of the batch to (ids to force, tokens so far); vLLM keeps appending to the second list."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.requests, batch_update, _entry)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, (ids, output) in self.requests.items():
            token = ids[len(output)]
            logits[row] = -float("inf")
            logits[row, token] = 0.0
        return logits


def _ids(params: SamplingParams) -> Any:
    return (params.extra_args or {}).get(ARGUMENT)


def _entry(params: SamplingParams, prompt: list[int] | None, output: list[int]) -> tuple[list[int], list[int]] | None:
    ids = _ids(params)
    return (ids, output) if ids is not None else None
