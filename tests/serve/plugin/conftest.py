"""vLLM's layers are imported once, before any test: what they deprecate among themselves is not ours to fail for."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import vllm.model_executor.layers.fused_moe
    import vllm.models.deepseek_v4  # noqa: F401
