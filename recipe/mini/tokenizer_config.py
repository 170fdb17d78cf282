"""What transformers and vLLM need to know of a small pack's tokenizer beside its vocabulary."""

from __future__ import annotations

from pathlib import Path

from recipe import pack_write

END = "<|end|>"
"""Id 0: separates documents and ends a text."""


def write_config(folder: Path, context: int) -> None:
    """Write ``tokenizer_config.json`` for texts of ``context`` tokens at the most."""
    pack_write.write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END,
            "pad_token": END,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": context,
        },
    )
