"""What the next attempt is told: why the last one gave no candidate, or which gates refused it, in their own words."""

from __future__ import annotations

from runner.brief.render import fenced
from runner.model.attempt import Attempt


def told(attempts: tuple[Attempt, ...], bound: int) -> str:
    """A section for the brief; empty before the first attempt."""
    if not attempts:
        return ""
    last = attempts[-1]
    lines = [
        "",
        f"## Attempt {len(attempts) + 1} of {bound}",
        "",
        f"Attempt {last.number} did not do it. " + _standing(last),
        "",
    ]
    lines += [fenced(text) + "\n" for text in _reasons(last)]
    for one in attempts[:-1]:
        lines += [f"Before that, attempt {one.number}:", "", fenced("\n".join(_reasons(one))), ""]
    return "\n".join(lines)


def shortened(text: str, most: int = 2000) -> str:
    """``text``, but for what is beyond ``most`` characters: the history of nine attempts has to fit into a report."""
    return text if len(text) <= most else f"{text[:most]} … and {len(text) - most} characters more"


def _standing(attempt: Attempt) -> str:
    if attempt.judged:
        return (
            f"Its commit was frozen and judged {attempt.judged.verdict} in run {attempt.judged.run}. Your clone begins "
            "with that commit. These gates did not pass:"
        )
    if attempt.commit:
        return "Its commit was frozen and cannot be built. Your clone begins with that commit. This was found:"
    return "Nothing of it was taken; your clone begins where it began. This was found:"


def _reasons(attempt: Attempt) -> list[str]:
    if attempt.judged:
        return list(attempt.judged.reasons)
    return [f"{finding.kind}: {finding.detail}" for finding in attempt.findings]


__all__ = ["shortened", "told"]
