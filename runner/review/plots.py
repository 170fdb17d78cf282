"""Inline SVG, drawn by hand so that a page needs no script and no other file. Titles show on hover."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from runner.review.figures import Block, LayerCost, Pairs, WindowRows

WIDTH, LEFT, RIGHT, ROW = 760, 170, 20, 14
COLOURS = ("#6b7280", "#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2")
"""One a variant, in the order of :func:`runner.review.figures.variants`; told apart by shape of text as well."""


def _colour(variant: str, variants: Sequence[str]) -> str:
    return COLOURS[variants.index(variant) % len(COLOURS)]


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _dot(x: float, y: float, colour: str, title: str, hollow: bool = False) -> str:
    fill = "none" if hollow else colour
    circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{colour}">'
    return f"{circle}<title>{escape(title)}</title></circle>"


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title, quote=True)}">'
    return "\n".join([head, *parts, "</svg>"])


def _legend(variants: Sequence[str], y: float) -> list[str]:
    parts, x = [], float(LEFT)
    for variant in variants:
        parts += [_dot(x, y - 4, _colour(variant, variants), variant), _text(x + 8, y, variant)]
        x += 30 + 7 * len(variant)
    return parts


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Both ends with a little air; never an empty span."""
    low, high = min(values), max(values)
    air = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return low - air, high + air


def samples_per_block(blocks: Sequence[Block], variants: Sequence[str]) -> str:
    """Decode rate of each block in measured order; a hollow dot was disturbed. Empty without blocks."""
    if not blocks:
        return ""
    low, high = _span([block.rate for block in blocks])
    height, top, floor = 260, 30, 230
    step = (WIDTH - LEFT - RIGHT) / len(blocks)
    parts = _legend(variants, 16)
    for part in range(5):
        value = low + (high - low) * part / 4
        y = floor - (floor - top) * part / 4
        parts += [_line(LEFT, y, WIDTH - RIGHT, y, "grid"), _text(LEFT - 8, y + 4, f"{value:.3g} tok/s", "end")]
    for number, block in enumerate(blocks):
        y = floor - (floor - top) * (block.rate - low) / (high - low)
        title = f"{block.window}: {block.variant} {block.rate:g} tok/s" + (", disturbed" if block.disturbed else "")
        parts.append(_dot(LEFT + step * (number + 0.5), y, _colour(block.variant, variants), title, block.disturbed))
    parts.append(_text(LEFT, height - 8, "blocks in the order in which they were measured"))
    return _svg(height, "decode rate of each block", parts)


def interval(pairs: Pairs | None) -> str:
    """Each quad's gain and the exact interval of the median. Empty without quads."""
    if pairs is None:
        return ""
    low, high = _span([0.0, pairs.low, pairs.high, *(pair.percent for pair in pairs.values)])
    height = ROW * (len(pairs.values) + 1) + 50

    def x(percent: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (percent - low) / (high - low)

    parts = [_line(x(0), 10, x(0), height - 30, "axis"), _text(x(0), height - 14, "0 %", "middle")]
    for number, pair in enumerate(pairs.values):
        y = 20 + ROW * number
        parts += [
            _text(LEFT - 8, y + 4, pair.quad, "end"),
            _dot(x(pair.percent), y, COLOURS[1], f"{pair.percent:+.2f} %"),
        ]
    y = 20 + ROW * len(pairs.values)
    parts += [
        _text(LEFT - 8, y + 4, f"median, {100 * pairs.coverage:.1f} %", "end"),
        _line(x(pairs.low), y, x(pairs.high), y, "interval"),
        _text(x(pairs.low), height - 14, f"{pairs.low:+.2f} %", "middle"),
        _text(x(pairs.high), height - 2, f"{pairs.high:+.2f} %", "middle"),
    ]
    return _svg(height, "candidate over incumbent, quad by quad", parts)


def rows_by_window(windows: Sequence[WindowRows], variants: Sequence[str]) -> str:
    """Share of launches by variant, one bar a window and rank; the title gives rows. Empty without launches."""
    if not windows:
        return ""
    height = ROW * len(windows) + 40
    parts = _legend(variants, 16)
    for number, window in enumerate(windows):
        y = 26 + ROW * number
        parts.append(_text(LEFT - 8, y + 9, f"{window.window} · rank {window.rank}", "end"))
        total = sum(sum(rows.values()) for rows in window.launches.values())
        x = float(LEFT)
        for variant in sorted(window.launches, key=variants.index):
            rows = window.launches[variant]
            wide = (WIDTH - LEFT - RIGHT) * sum(rows.values()) / total if total else 0.0
            detail = ", ".join(f"{rows[count]} at {count if count < 65 else '> 64'} rows" for count in sorted(rows))
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{ROW - 3}" fill="{_colour(variant, variants)}">'
                f"<title>{escape(f'{variant}: {detail}')}</title></rect>"
            )
            x += wide
    return _svg(height, "launches of routed experts by window and rank", parts)


def layer_costs(costs: Sequence[LayerCost]) -> str:
    """Rise of perplexity by layer, the title gives the divergence. Empty without a sweep."""
    if not costs:
        return ""
    low, high = _span([0.0, *(cost.percent for cost in costs)])
    height = ROW * len(costs) + 50

    def x(percent: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (percent - low) / (high - low)

    parts = [_line(x(0), 10, x(0), height - 30, "axis"), _text(x(0), height - 14, "0 %", "middle")]
    for number, cost in enumerate(costs):
        y = 20 + ROW * number
        title = f"{cost.layer}: perplexity {cost.percent:+.3f} %, KL {float(cost.mean_kl):.3g} nats"
        parts += [
            _text(LEFT - 8, y + 4, cost.layer, "end"),
            f'<rect x="{min(x(0), x(cost.percent)):.1f}" y="{y - 4}" width="{abs(x(cost.percent) - x(0)):.1f}" '
            f'height="{ROW - 5}" fill="{COLOURS[1]}"><title>{escape(title)}</title></rect>',
            _text(x(max(cost.percent, 0.0)) + 4, y + 4, f"{cost.percent:+.2f} %"),
        ]
    return _svg(height, "what each changed layer costs", parts)


__all__ = ["interval", "layer_costs", "rows_by_window", "samples_per_block"]
