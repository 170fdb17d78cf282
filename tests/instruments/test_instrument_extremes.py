"""An instrument reads a sample or says that there is none, whatever numbers an engine answered with."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from runner.errors import EvidenceError
from runner.model.evidence import Evidence
from runner.model.plan import PlannedWindow
from serve.instruments import registry

FOLDER = Path(__file__).resolve().parent
NAMES = tuple(known.NAME for known in registry.all_instruments())
NUMBER = re.compile(r"(?<![\w.\"-])-?[0-9]+(\.[0-9]+)?(?![\w.\"-])")
EXTREMES = ("0", "-1", "710", "2500", "1e308", "-1e308", "1e-308", "1e999", str(10**18), str(10**400))


@cache
def cases(name: str) -> tuple[tuple[PlannedWindow, tuple[str, ...]], ...]:
    """Windows with the JSON text of their evidence."""
    found = []
    for path in sorted((FOLDER / name).glob("*_pass/input.json")):
        data = json.loads(path.read_bytes())
        window = PlannedWindow.model_validate_json(json.dumps(data["window"]))
        found.append((window, tuple(json.dumps(one) for one in data["evidence"])))
    return tuple(found)


def changed(text: str, extremes: st.DataObject) -> str:
    """The text with one of its numbers, or all of them, replaced."""
    places = [match.span() for match in NUMBER.finditer(text)]
    at = extremes.draw(st.sampled_from([*places, None]))
    extreme = extremes.draw(st.sampled_from(EXTREMES))
    for start, end in reversed(places):
        if at in (None, (start, end)):
            text = text[:start] + extreme + text[end:]
    return text


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_sample_or_none(name: str, data: st.DataObject) -> None:
    window, texts = data.draw(st.sampled_from(cases(name)))
    try:
        evidence = [Evidence.model_validate_json(changed(text, data)) for text in texts]
    except ValidationError:
        return  # no evidence file holds this
    with suppress(EvidenceError):
        assert registry.read(evidence, window).window == window.id


def test_a_top_logprob_beyond_any_exponential_gives_no_sample() -> None:
    window, texts = next(one for one in cases("kld") if len(one[1]) == 2)
    loud = [re.sub(r'(token_id:2[\\"]+: )-[0-9.]+', r"\g<1>800.0", text) for text in texts]
    assert loud[0] != texts[0]
    with pytest.raises(EvidenceError, match="cannot read"):
        registry.read([Evidence.model_validate_json(text) for text in loud], window)
