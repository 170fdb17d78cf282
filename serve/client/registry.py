"""Instrument name → the driver that collects its evidence from a running boot."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import InputError
from runner.model.evidence import Evidence
from serve.client.context import WindowContext

Driver = Callable[[WindowContext], Evidence]

_DRIVERS: dict[str, Driver] = {}


def driver(instrument: str) -> Driver:
    """The driver of ``name@version`` (the version belongs to the instrument; evidence stays raw).

    Raises InputError for a name that no driver serves.
    """
    name = instrument.partition("@")[0]
    if name not in _DRIVERS:
        raise InputError(
            "no client driver collects evidence for this instrument",
            where=instrument,
            expected=", ".join(sorted(_DRIVERS)),
            found=name,
            next_step="name one of the known instruments in the order",
        )
    return _DRIVERS[name]
