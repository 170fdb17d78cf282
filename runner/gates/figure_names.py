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
    "perturbation": ("perturbation floor", "perturbation rank {rank}", "perturbation rank {rank} prediction error"),
    "watermark": ("watermark floor", "watermark rank {rank}"),
    "knock-out": ("knock-out-zero floor", "knock-out-zero rank {rank}"),
    "parity": ("cases", "worst relative error"),
    "kernel-speed": ("{case} over {kernel}, low", "{case} candidate", "{case} {kernel}"),
    "pressure": ("{case} over its floor", "{case} without decoding over its floor"),
    "sanitizer": ("{tool} errors",),
    "kld": (
        "kld-candidate mean KL, worst end",
        "kld-candidate top-1 agreement",
        "kld-candidate largest KL",
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
    "kv-window": ("kv-window filled", "kv-window pool"),
    "memory": ("memory {field} off",),
    "launches": ("launches-{arm} steps", "launches-{arm} device busy", "launches-{arm} {group} launches"),
    "rank-skew": ("rank-skew-{arm}-{run} skew", "rank-skew-{arm}-{run} step p50", "rank-skew-{arm}-{run} step p95"),
    "eager-gap": (
        "gain with graphs",
        "gain without graphs",
        "gain that graphs take away",
        "graphs over eager, incumbent",
    ),
    "acceptance": (
        "acceptance-{language}-{arm} length",
        "acceptance-{language}-{arm} drafts",
        "acceptance-{language}-{arm} accepted at position {position}",
    ),
    "greedy-band": (
        "greedy-band-{texts} texts that part",
        "greedy-band-{texts} widest gap",
        "greedy-band-{texts} shortest common",
    ),
    "finish": ("texts", "stopped by themselves"),
    "sanity": ("{language} script, {arm}", "{language} distinct, {arm}"),
    "vision": ("read by incumbent", *_TRIALS),
    "agreement": (
        "{reader}: median relative error",
        "{reader}: ninth decile relative error",
        "{reader}: largest relative error",
        "{reader}: choices of experts",
        "{reader}: ties",
        "{reader}: ties taken otherwise",
        "{reader}: largest relative error, ties as ours",
        "{reader}: perplexity",
        "{reader}: served perplexity",
        "{reader}: difference of perplexities",
    ),
    "sensitivity": ("{layer} perplexity", "{layer} worst end", "{layer} mean KL"),
    "restore": ("boots", "fields compared"),
}
"""What stands in braces differs between arms, ranks, languages, runs or cases."""

_PARTS = {
    "{language}": "(?P<language>en|ja|code)",
    "{arm}": "(?P<arm>incumbent|candidate)",
    "{rank}": "(?P<rank>0|[1-9][0-9]*)",
    "{run}": "[1-9][0-9]*",
    "{position}": "(0|[1-9][0-9]*)",
    "{texts}": "(again|candidate|speculating-incumbent|speculating-candidate)",
    "{field}": "(weights_bytes|scratch_bytes|graph_bytes|kv_cache_tokens)",
    "{tool}": "(memcheck|racecheck|initcheck|synccheck)",
    "{kernel}": r"(best incumbent|\S+)",
    "{reader}": ".+",
}


def figure(gate: str, name: str) -> dict[str, str] | None:
    """Language, arm and rank as far as the name of one of the gate's figures says them; None where it is none."""
    found = (re.fullmatch(_pattern(one), name) for one in FIGURES.get(gate, ()))
    return next((one.groupdict() for one in found if one), None)


def _pattern(name: str) -> str:
    words = re.split(r"({[a-z]+})", name)
    return "".join(_PARTS.get(word, r"\S+") if word.startswith("{") else re.escape(word) for word in words)


__all__ = ["FIGURES", "figure"]
