"""One self-contained HTML page: no script, no font, no image, no request."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from runner.attest.statement import Signed
from runner.hidden import without_hidden
from runner.model.report import Measured, ReportPredicate
from runner.review import figures, plots
from runner.review.people import Waivers, told
from runner.summary import without_sample


def render(entry: Signed, measured: Measured, tries: int, waivers: Waivers = ()) -> str:
    """The page of a verified report. ``tries`` is how many intents its candidate has under its order."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=False
    )
    variants = figures.variants(measured)
    drawn = [
        ("Decode rate of each block", plots.samples_per_block(figures.blocks(measured), variants)),
        ("Candidate over incumbent, quad by quad", plots.interval(figures.pairs(measured))),
        ("What each changed layer costs", plots.layer_costs(figures.layer_costs(measured))),
        ("What ran in each window", plots.rows_by_window(figures.rows_by_window(measured), variants)),
    ]
    page = templates.get_template("page.html.j2").render(
        report=entry.of(ReportPredicate),
        measured=measured,
        told=told(entry.of(ReportPredicate), waivers),
        digest=entry.digest,
        signers=[signer.principal for signer in entry.signers],
        tries=tries,
        missing=without_sample(measured),
        plots=[(title, Markup(plot)) for title, plot in drawn],  # plots escape what they are given
    )
    return without_hidden(page)


__all__ = ["render"]
