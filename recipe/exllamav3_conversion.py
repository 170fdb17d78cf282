"""exllamav3's own conversion as the quantiser of a bake: its calibration and search, our choice of modules and bits.

What is relied on, read in the distributions 1.4.5 and 1.6.5: the conversion is ``exllamav3.conversion.convert_model``
(``parser``, ``prepare``, ``main``); a recipe file gives each linear its bits, 16 leaves it plain, and every linear of
the layers must be in it; coded modules lie in ``WORK/qtensors``; finished modules are kept in ``WORK/ckpt``. Three
traps: a resumed job silently takes the command line's default codebook in the place of its own, the two versions have
other defaults for output scales, and the distribution of 1.4.5 lacks the calibration text that its code opens. So every
argument that counts is given each time, a resume is refused here where anything differs, and token rows can be given.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from carve_kernels.exl3 import pack_format

from recipe import whole_folder
from recipe.headers import Entry, read_header
from runner.digest import canonical_json, sha256_file
from runner.errors import InputError, StateError
from runner.files import write_whole

VERSIONS = ("1.4.5", "1.6.5")
_WITHOUT_TEXT = ("1.4.5",)
PLAIN = 16
"""Bits that leave a linear as it is."""
_BEGUN = "begun.json"
_CHECKPOINT = "ckpt/job.json"
_LOG = "log.txt"
_PROXY = re.compile(r"Quantized: (\S+) +bpw: +[\d.]+ +proxy_err: +([\d.]+)")
_CODE = (
    "import sys; from exllamav3.conversion.convert_model import main, parser, prepare;"
    "arguments, state, fine, words = prepare(parser.parse_args(sys.argv[1:]));"
    "sys.exit(words) if not fine else main(arguments, state)"
)


@dataclass(frozen=True)
class Conversion:
    """One conversion, resolved."""

    source: Path
    """A plain checkpoint of an architecture that exllamav3 knows."""
    work: Path
    """The library's working folder: checkpoints and coded modules."""
    bits: Mapping[str, int]
    """Every linear of the layers to its bits; :data:`PLAIN` keeps one."""
    codebook: str = "mcg"
    rows: int = 250
    """Sequences of calibration."""
    columns: int = 2048
    """Tokens of each."""
    calibration: Path | None = None
    """A safetensors file with ``input_ids`` int64 ``[rows, columns]``; the library's bundled text where there is none,
    which only 1.6.5 has."""
    devices: str = "0"

    @property
    def recipe(self) -> Path:
        """The file that gives each linear its bits."""
        return self.work.with_name(f"{self.work.name}.recipe.json")

    @property
    def output(self) -> Path:
        """Where the library puts a whole pack of its own."""
        return self.work.with_name(f"{self.work.name}.output")


def recipe_text(conversion: Conversion) -> bytes:
    """The recipe file (JSON, which is YAML). Raises InputError for bits that the format does not have."""
    wrong = {name: bits for name, bits in conversion.bits.items() if bits != PLAIN and not 1 <= bits <= 8}
    if wrong or not conversion.bits:
        raise InputError(
            "no such bits", where=", ".join(sorted(wrong)), expected=f"1 to 8, or {PLAIN}", found=str(wrong)
        )
    coded = [bits for bits in conversion.bits.values() if bits != PLAIN]
    mean = sum(coded) / max(1, len(coded))
    return canonical_json({"tensors": dict(conversion.bits), "target_bpw": round(mean, 4) or 1.0, "head_bits": PLAIN})


def arguments(conversion: Conversion, *, resume: bool) -> list[str]:
    """The library's command line, with nothing left to a default that differs between versions or on resume."""
    told: dict[str, object] = {
        "-w": conversion.work,
        "-i": conversion.source,
        "-o": conversion.output,
        "-rcp": conversion.recipe,
        "-hb": PLAIN,
        "-mb": PLAIN,
        "-vb": PLAIN,
        "-cb": conversion.codebook,
        "-cr": conversion.rows,
        "-cc": conversion.columns,
        "-d": conversion.devices,
        "--out_scales": "always",
    }
    if conversion.calibration is not None:
        told["-cd"] = conversion.calibration
    return [word for flag, value in told.items() for word in (flag, str(value))] + (["-r"] if resume else [])


def convert(conversion: Conversion, note: Callable[[str], None]) -> dict[str, Entry]:
    """Run, or go on with, a conversion; the coded tensors by name, as they lie in the working folder.

    What the library prints goes to ``WORK/log.txt`` as it comes. Raises StateError without exllamav3, for a working
    folder begun with other arguments or another version of it, and where the library gives up; InputError where that
    version has no calibration text and none is given.
    """
    library = _installed()
    if library in _WITHOUT_TEXT and conversion.calibration is None:
        raise InputError(
            "this exllamav3 comes without its calibration text",
            where=f"exllamav3 {library}",
            expected="token rows to calibrate on",
            found="none",
            next_step="give the bake a `calibration`",
        )
    conversion.work.mkdir(parents=True, exist_ok=True)
    with whole_folder.alone(conversion.work):  # two would delete each other's modules
        _run(conversion, library, note)
        return collect(conversion)


def _run(conversion: Conversion, library: str, note: Callable[[str], None]) -> None:
    resume = _begin(conversion, library)
    note(f"exllamav3 {library} {'goes on' if resume else 'converts'}: {len(conversion.bits)} linears")
    command = [sys.executable, "-c", _CODE, *arguments(conversion, resume=resume)]
    with (conversion.work / _LOG).open("ab") as log:
        done = subprocess.run(command, stdout=log, stderr=log, env=os.environ | {"PYTHONUNBUFFERED": "1"}, check=False)
    if done.returncode:
        last = (conversion.work / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-4:]
        raise StateError(
            "exllamav3's conversion did not finish",
            where=str(conversion.work),
            expected="exit code 0",
            found="\n    ".join(["", *last]),
            next_step="read log.txt there; the same call goes on from the last checkpoint",
        )


def _begin(conversion: Conversion, library: str) -> bool:
    """Whether there is a checkpoint to go on from. Raises StateError where it is of another conversion."""
    told: dict[str, Any] = asdict(conversion) | {"exllamav3": library}
    now = {name: str(value) if isinstance(value, Path) else value for name, value in told.items() if name != "work"}
    now["bits"] = dict(conversion.bits)
    now["calibration"] = sha256_file(conversion.calibration) if conversion.calibration else None
    begun = conversion.work / _BEGUN
    if begun.is_file():
        before = json.loads(begun.read_bytes())
        if changed := sorted(name for name in before | now if before.get(name) != now.get(name)):
            raise StateError(
                "a conversion was begun here with other arguments or another library",
                where=str(conversion.work),
                expected="the same as at its beginning",
                found=f"changed: {', '.join(changed)}",
                next_step="remove that folder to start again",
            )
        return (conversion.work / _CHECKPOINT).is_file()
    whole_folder.fresh(conversion.work)
    write_whole(conversion.recipe, recipe_text(conversion))
    write_whole(begun, canonical_json(now))
    return False


def collect(conversion: Conversion) -> dict[str, Entry]:
    """The tensors of every coded module. StateError for one that is missing, of other bits or of another codebook."""
    files = sorted((conversion.work / "qtensors").glob("*.safetensors"))
    entries = {entry.name: entry for file in files for entry in read_header(file).entries}
    found: dict[str, Entry] = {}
    for module, bits in conversion.bits.items():
        if bits == PLAIN:
            continue
        trellis = entries.get(f"{module}.trellis")
        told = trellis.shape[2] // 16 if trellis is not None and len(trellis.shape) == 3 else 0
        book = pack_format.codebook_of(module, entries).value
        if (told, book) != (bits, conversion.codebook):
            raise StateError(
                "the conversion left another module than it was asked for",
                where=f"{conversion.work}: {module}",
                expected=f"K={bits} {conversion.codebook}",
                found=f"K={told} {book}" if told else "none",
            )
        found |= {
            name: entries[name] for name in pack_format.tensor_names(module, pack_format.codebook_of(module, entries))
        }
    return found


def proxy_errors(conversion: Conversion) -> dict[str, float]:
    """The error of each module's outputs on the calibration text, as the library printed it."""
    log = (conversion.work / _LOG).read_text(encoding="utf-8", errors="replace")
    return {name: float(error) for name, error in _PROXY.findall(log)}


def linears(weights: Mapping[str, Entry], prefix: str, layers: int) -> list[str]:
    """Names of the linears that a recipe has to name: matrices of layers ``0 .. layers - 1``, routers left out."""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\..+\.weight$")
    found = []
    for name, entry in weights.items():
        match = pattern.match(name)
        if match and int(match[1]) < layers and len(entry.shape) == 2 and not name.endswith(".gate.weight"):
            found.append(name.removesuffix(".weight"))
    return sorted(found)


def _installed() -> str:
    try:
        found = version("exllamav3")
    except PackageNotFoundError:
        found = "none"
    if found not in VERSIONS:
        raise StateError(
            "exllamav3's conversion is not installed",
            expected=f"exllamav3 {' or '.join(VERSIONS)}, on a GPU host",
            found=found,
            next_step="use `quantiser: native`, or run on a host with that library",
        )
    return found
