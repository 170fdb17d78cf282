"""Instrument name → the driver that collects its evidence from a running boot."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import InputError
from runner.model.evidence import Evidence
from serve.client.agreement import agreement
from serve.client.answers import sanity, score, ttft, vision
from serve.client.context import WindowContext
from serve.client.desk import claims, kernel_speed, pack, parity, pressure, product, sanitizer
from serve.client.engaged import engaged
from serve.client.forced import kld, ppl_decode
from serve.client.greedy import acceptance, greedy_band
from serve.client.kv import kv_window
from serve.client.memory import memory
from serve.client.needle import needles
from serve.client.prompt_logprobs import ppl_prefill
from serve.client.refusal import knock_out_decline
from serve.client.resolved import resolved
from serve.client.sensitivity import sensitivity
from serve.client.shift import knock_out_zero, perturbation, watermark
from serve.client.stream import finish, speed
from serve.client.traces import traced

Driver = Callable[[WindowContext], Evidence]

_DRIVERS: dict[str, Driver] = {
    "acceptance": acceptance,
    "agreement": agreement,
    "engaged": engaged,
    "finish": finish,
    "greedy-band": greedy_band,
    "kernel-speed": kernel_speed,
    "kld": kld,
    "knock-out-decline": knock_out_decline,
    "knock-out-zero": knock_out_zero,
    "kv-window": kv_window,
    "launches": traced,
    "memory": memory,
    "needle": needles,
    "pack": pack,
    "parity": parity,
    "perturbation": perturbation,
    "ppl-decode": ppl_decode,
    "ppl-prefill": ppl_prefill,
    "pressure": pressure,
    "product": product,
    "rank-skew": traced,
    "claims": claims,
    "resolved": resolved,
    "sanitizer": sanitizer,
    "sanity": sanity,
    "score": score,
    "sensitivity": sensitivity,
    "speed": speed,
    "ttft": ttft,
    "vision": vision,
    "watermark": watermark,
}


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
