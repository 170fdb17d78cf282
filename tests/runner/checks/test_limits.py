"""An order whose gate could not fail, or could not pass, is refused before any seat time."""

from __future__ import annotations

import pytest

from runner.check import check
from runner.errors import InputError
from runner.ledger import LEDGER
from runner.model.order import parse_order
from runner.paths import source_root
from runner.steps.seats import load_manifest

SOUND = (source_root() / "orders" / "mini-lna2.yaml").read_text()
SPEED = "  - name: speed\n"


def faults(old: str, new: str) -> list[str]:
    """Faults of the sound order with one place changed, each with its path."""
    assert SOUND.count(old), old
    order = parse_order(SOUND.replace(old, new), "order.yaml")
    return [f"{'.'.join(map(str, one.path))}: {one.message}" for one in check(order, load_manifest("cpu-mini"))]


def of_speed(parameters: str) -> list[str]:
    return faults(SPEED, f"{SPEED}    parameters: {{{parameters}}}\n")


def test_no_order_has_the_folder_of_the_ledger() -> None:
    (fault,) = faults("id: mini-lna2\n", f"id: {LEDGER.name}\n")
    assert fault.startswith("id: ledger has a folder among the reports")


def test_the_order_is_sound_to_begin_with() -> None:
    assert faults(SPEED, SPEED) == []


@pytest.mark.parametrize("value", ["-1", "0", "0.7", "5", "100"])
def test_a_loss_is_more_than_nothing_and_less_than_a_bit(value: str) -> None:
    (kld,) = faults("bound: 0.001", f"bound: {value}")
    assert kld.startswith(f"gates.7.parameters.bound: kld: bound {value} decides nothing")
    prefill, decode = faults("margin: 0.005", f"margin: {value}")
    assert "ppl-prefill: margin" in prefill
    assert "ppl-decode: margin" in decode


@pytest.mark.parametrize("value", ["1e-4", "0.0001", "0.05", "0.6931"])
def test_a_sensible_loss_is_left_to_the_order(value: str) -> None:
    assert faults("bound: 0.001", f"bound: {value}") == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("top1: 0.99", "top1: 0", "kld: top1 0 decides nothing"),
        ("top1: 0.99", "top1: 1.01", "kld: top1 1.01 decides nothing"),
        ("top1: 0.99", "top1: 0.99, coverage: 0", "coverage 0 decides nothing"),
        ("predicted: true", "predicted: true, error: 2", "no change at all is an error of 1"),
        ("predicted: true", "predicted: true, factor: 1", "what is no larger than the noise"),
        ("predicted: true", "predicted: true, least: 0", "a change of nothing"),
        ("  - name: parity\n", "  - {name: parity, parameters: {relative_error: 1}}\n", "a tenth is no rounding"),
        ("tokens: 96", "tokens: 1", "1 tokens of a document are no document"),
        (
            "  - name: resolved\n",
            "  - {name: resolved, parameters: {ignored: [dtype, seed]}}\n",
            "dtype is asked for under target.serve",
        ),
    ],
)
def test_what_decides_nothing_is_refused(old: str, new: str, words: str) -> None:
    (fault,) = faults(old, new)
    assert words in fault


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ("margin: 0.0001", "speed: margin comes from primary"),
        ("metric: aggregate-rate", "speed: metric comes from primary"),
        ("pairing: boot", "speed: pairing comes from primary"),
        ("a_a_half_width: 0.0001", "speed: a_a_half_width comes from the seat's manifest"),
        ("boot_to_boot: 9", "speed: boot_to_boot comes from the seat's manifest"),
        ("short: unresolved", "speed: short comes from the seat's manifest"),
        ("broken_off: 9", "speed: broken_off comes from the plan"),
        ("texts: any", "speed: texts may be equal here"),
        ("alone: bounded", "speed: alone may be discounted here"),
    ],
)
def test_an_order_does_not_say_twice_what_speed_is_sealed_with(parameters: str, words: str) -> None:
    """A margin of the gate's own would pass by the seat's floor, which is held against the primary's."""
    (fault,) = of_speed(parameters)
    assert words in fault


@pytest.mark.parametrize("parameters", ["texts: equal", "alone: discounted", "tail: 0.8", "require: not-slower"])
def test_an_order_may_ask_for_more(parameters: str) -> None:
    assert of_speed(parameters) == []


@pytest.mark.parametrize("value", ["1e400", "-1e400", "1e999999"])
def test_a_number_that_no_machine_holds_is_refused(value: str) -> None:
    with pytest.raises(InputError, match="not a valid work order") as caught:
        faults("margin: 0.15", f"margin: {value}")
    assert "no number that binary64 holds" in caught.value.found
