"""A container beside what was asked of it: names with values on both sides, which the gates compare one by one.

``docker inspect`` says what the container was given; what the engine made of its environment the witness says. Counts
and values are compared, never impressions: health 200 and the right KV size once came from the wrong plugin (FL-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from runner.model.seat import Canonical
from serve.adapters.docker_launch import Bound, Launch
from serve.witness.environment import ABSENT, LIVE, NAMES

PREFIX = "container."
"""Before what docker says; what the engine's own environment says has another."""
_MOUNT, _VARIABLE = f"{PREFIX}mount.", f"{PREFIX}environment."
_EMPTY = "empty"


def wanted(launch: Launch) -> dict[str, JsonValue]:
    """What the container and the engine's environment have to be, by name."""
    mounts: dict[str, JsonValue] = {
        f"{_MOUNT}{bound.inside}": _words(bound.word, bound.writable) for bound in launch.bounds
    }
    mounts |= {f"{_MOUNT}{folder}": _EMPTY for folder in launch.hidden}
    live = {name: value for name, value in launch.environment.items() if name != NAMES}
    return {
        f"{PREFIX}image": f"sha256:{launch.image}",
        f"{PREFIX}command": list(launch.command),
        f"{PREFIX}devices": [str(device) for device in launch.devices],
        f"{PREFIX}ulimits": dict(sorted(launch.ulimits.items())),
        f"{PREFIX}shared_memory_gb": launch.shared_memory_gb,
        f"{PREFIX}privileged": False,
        f"{PREFIX}mounts": len(mounts),
        f"{PREFIX}variables": len(launch.environment),
        **mounts,
        **{f"{_VARIABLE}{name}": value for name, value in sorted(launch.environment.items())},
        **{f"{LIVE}{name}": value for name, value in sorted(live.items())},
    }


def found(inspected: Mapping[str, Any], launch: Launch, image_environment: Iterable[str]) -> dict[str, JsonValue]:
    """The same names as docker answers for them; ``image_environment`` is what the image itself sets.

    A mount from the place where it was asked for bears its word; another bears the path that docker names.
    """
    config, host = inspected["Config"], inspected["HostConfig"]
    words = {(bound.host, bound.inside): bound.word for bound in launch.bounds}
    mounts = {f"{_MOUNT}{one['Destination']}": _mounted(one, words) for one in inspected["Mounts"]}
    own, given = set(image_environment), set(config["Env"] or ())
    # A variable that the image sets as it stands nobody added, unless the manifest asks for it too.
    added = {entry for entry in given if entry not in own or entry.partition("=")[0] in launch.environment}
    variables = dict(entry.partition("=")[::2] for entry in added)
    devices = [device for request in host["DeviceRequests"] or () for device in request["DeviceIDs"] or ["all"]]
    return {
        f"{PREFIX}image": inspected["Image"],
        f"{PREFIX}command": [*(config["Entrypoint"] or ()), *(config["Cmd"] or ())],
        f"{PREFIX}devices": devices,
        f"{PREFIX}ulimits": {one["Name"]: one["Hard"] for one in host["Ulimits"] or ()},
        f"{PREFIX}shared_memory_gb": host["ShmSize"] // (1 << 30),
        f"{PREFIX}privileged": host["Privileged"],
        f"{PREFIX}mounts": len(mounts),
        f"{PREFIX}variables": len(variables),
        **mounts,
        **{f"{_VARIABLE}{name}": value for name, value in sorted(variables.items())},
    }


def _mounted(one: Mapping[str, Any], words: Mapping[tuple[str, str], str]) -> str:
    if one["Type"] == "tmpfs":
        return _EMPTY
    source = one["Source"]
    return _words(words.get((source, one["Destination"]), source), bool(one["RW"]))


def _words(word: str, writable: bool) -> str:
    return f"{word} {'writable' if writable else 'read-only'}"


def canonical(standing: Canonical, log: str, kv_tokens: int) -> tuple[dict[str, JsonValue], dict[str, JsonValue]]:
    """(wanted, found) of what is counted on the standing seat: log lines that hold a text, and KV tokens."""
    lines = log.splitlines()
    asked: dict[str, JsonValue] = {f"log lines with {one.text!r}": one.count for one in standing.log_lines}
    answer: dict[str, JsonValue] = {
        f"log lines with {one.text!r}": sum(one.text in line for line in lines) for one in standing.log_lines
    }
    if standing.kv_tokens is not None:
        asked["kv_tokens"] = standing.kv_tokens
    return asked, answer | {"kv_tokens": kv_tokens}


def with_unasked(asked: Mapping[str, JsonValue], answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """``asked``, and as absent every mount and variable of the answer that nobody asked for."""
    other = [name for name in answer if name.startswith((_MOUNT, _VARIABLE)) and name not in asked]
    return {**asked, **dict.fromkeys(other, ABSENT)}


def launch_from(resolved: Mapping[str, Any], seat: str, port: str) -> Launch | None:
    """The launch that a boot's own readback describes, with words in braces for places; None for another adapter's."""
    if f"{PREFIX}image" not in resolved:
        return None
    mounts = {name.removeprefix(_MOUNT): str(value) for name, value in resolved.items() if name.startswith(_MOUNT)}
    bounds = []
    for inside, value in mounts.items():
        word, _, mode = value.rpartition(" ")
        if value != _EMPTY:
            bounds.append(Bound(word, word, inside, mode == "writable"))
    return Launch(
        name=f"carve-{seat}",
        labels={"seat": seat},
        image=str(resolved[f"{PREFIX}image"]).removeprefix("sha256:"),
        devices=tuple(int(device) for device in resolved[f"{PREFIX}devices"]),
        bounds=tuple(bounds),
        hidden=tuple(inside for inside, value in mounts.items() if value == _EMPTY),
        environment={
            name.removeprefix(_VARIABLE): str(value) for name, value in resolved.items() if name.startswith(_VARIABLE)
        },
        ulimits=resolved[f"{PREFIX}ulimits"],
        shared_memory_gb=int(resolved[f"{PREFIX}shared_memory_gb"]),
        port=port,
        command=tuple(resolved[f"{PREFIX}command"]),
    )


__all__ = ["PREFIX", "canonical", "found", "launch_from", "wanted", "with_unasked"]
