"""Names of the figures that a kill line may rest on, a gate each; `runner gates` prints them.

Only numbers that a gate always gives when it decides: not of the rank that happens to be slowest, and no digests.
"""

from __future__ import annotations

import re

_TRIALS = ("lost", "won", "McNemar p")
_LIKELIHOOD = ("documents", "median increase", "worst end", "coverage", "perplexity incumbent", "perplexity")

FIGURES: dict[str, tuple[str, ...]] = {
    "pack": (),
    "product": (),
    "claims": ("unseen",),
    "resolved": ("fields compared",),
    "engaged": ("windows proved", "candidate launches"),
    "perturbation": ("{window} floor", "{window} rank {rank}", "{window} rank {rank} prediction error"),
    "watermark": ("{window} floor", "{window} rank {rank}"),
    "knock-out": ("{window} floor", "{window} rank {rank}"),
    "parity": ("cases", "worst relative error"),
    "kernel-speed": ("{case} over {kernel}, low", "{case} candidate", "{case} {kernel}"),
    "pressure": ("{case} over its floor", "{case} without decoding over its floor"),
    "sanitizer": ("{tool} errors",),
    "kld": (
        "{window} mean KL, worst end",
        "{window} top-1 agreement",
        "{window} largest KL",
        "incumbent against itself",
    ),
    "ppl-prefill": _LIKELIHOOD,
    "ppl-decode": _LIKELIHOOD,
    "speed": (
        "log-ratio, median",
        "interval, low",
        "interval, high",
        "coverage",
        "pairs planned",
        "slowest candidate boot over fastest",
        "slowest candidate block over fastest boot",
    ),
    "four-streams": ("{language} candidate", "{language} ratio", "{language} low end", "{language} high end"),
    "needle": ("found by incumbent", *_TRIALS),
    "score": ("right by incumbent", *_TRIALS),
    "ttft": ("prompts", "tokens of a prompt", "incumbent p50", "candidate over incumbent", "coverage", "worst end"),
    "kv-window": ("{window} filled", "{window} pool"),
    "memory": ("{window} {field} off",),
    "launches": ("{window} steps", "{window} device busy", "{window} {group} launches"),
    "rank-skew": ("{window} skew", "{window} step p50", "{window} step p95"),
    "eager-gap": (
        "gain with graphs",
        "gain without graphs",
        "gain that graphs take away",
        "graphs over eager, incumbent",
    ),
    "acceptance": ("{window} length", "{window} drafts", "{window} accepted at position {position}"),
    "greedy-band": ("{window} texts that part", "{window} widest gap", "{window} shortest common"),
    "finish": ("texts", "stopped by themselves"),
    "sanity": ("{language} script, {arm}", "{language} distinct, {arm}"),
    "vision": ("read by incumbent", *_TRIALS),
    "agreement": (
        "{reader}: median relative error",
        "{reader}: ninth decile relative error",
        "{reader}: largest relative error",
        "{reader}: perplexity",
        "{reader}: served perplexity",
        "{reader}: difference of perplexities",
    ),
    "sensitivity": ("{layer} perplexity", "{layer} worst end", "{layer} mean KL"),
    "restore": ("boots", "fields compared"),
}
"""What stands in braces differs between windows, ranks, languages or cases."""

_PARTS = {
    "{language}": "(en|ja|code)",
    "{arm}": "(incumbent|candidate)",
    "{rank}": "[0-9]+",
    "{position}": "[0-9]+",
    "{kernel}": r"(best incumbent|\S+)",
    "{reader}": ".+",
}


def is_figure(gate: str, name: str) -> bool:
    """Whether the gate gives a figure of this name. A window's name begins with its gate's."""
    return any(re.fullmatch(_pattern(gate, one), name) for one in FIGURES.get(gate, ()))


def _pattern(gate: str, name: str) -> str:
    words = re.split(r"({[a-z]+})", name)
    parts = _PARTS | {"{window}": rf"{re.escape(gate)}(-\S+)?"}
    return "".join(parts.get(word, r"\S+") if word.startswith("{") else re.escape(word) for word in words)


__all__ = ["FIGURES", "is_figure"]
