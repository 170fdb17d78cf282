"""The vLLM plugin: quantisation method ``exl3`` and the variants it dispatches to.

``register`` is the ``vllm.general_plugins`` entry point. vLLM calls it in the API server, the engine core and every
worker, so this module stays light to import.
"""

from __future__ import annotations


def register() -> None:
    """Register the quantisation method, die with the parent process, and fork workers where ``CARVE_FORK=1``."""
    from serve.plugin import processes, quantisation  # noqa: PLC0415 (loads vLLM, which this module must not)

    processes.follow_parent()
    processes.fork_workers_if_asked()
    quantisation.register_method()
