"""What a pack's configuration says of its coded modules, against what the headers say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from carve_kernels.exl3 import pack_format
from carve_kernels.exl3.codebook import Codebook

from recipe.blocks import COMPRESSION, CONFIG, Contents, Place, blocks_of
from recipe.census import Module, is_plain, layers, module_of
from recipe.closure import QUANTISATION, json_object
from recipe.headers import Entry, Fault, PackError
from recipe.model_size import is_draft, size_faults

_TORCH = {"I16": "torch.int16", "F16": "torch.float16", "I32": "torch.int32"}
_TORCH |= {"BF16": "torch.bfloat16", "F32": "torch.float32"}
"""How exllamav3 names types in ``stored_tensors``."""
_SLICE = re.compile(r"\.slice\.\d+$")
"""Ends the name of a module that is a part of a plain weight."""
_MEAN_TOLERANCE = 0.1
"""Bits a weight: a mean is rounded, and some writers tell the one they aimed at."""
_HEADS = frozenset({"head", "lm_head", "language_model.lm_head"})
_PLAIN_BITS = 16
"""What exllamav3 calls the bits of a part that it leaves as it is."""
_MULTIPLIERS = {f"{book.value}_multiplier": (book, marker) for book, marker in pack_format.MARKERS.items()}
"""What exllamav3 tells of a module's codebook."""


def quantisation_blocks(folder: Path) -> dict[Place, dict[str, Any]]:
    """Every quantisation block of the pack, by its place."""
    return {place: block for place, block in blocks_of(_contents(folder)).items() if isinstance(block, dict)}


def _contents(folder: Path) -> Contents:
    files = [name for name in (CONFIG, QUANTISATION) if (folder / name).is_file()]
    return {name: json_object((folder / name).read_bytes()) or {} for name in files}


def head_told(blocks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """``head_bits`` where one of the blocks tells them. Then all do, so that their means are of the same modules."""
    told = [block["head_bits"] for block in blocks if "head_bits" in block]
    return {"head_bits": told[0]} if told else {}


def all_anew(
    blocks: Mapping[Place, Mapping[str, Any]], tensors: Mapping[str, Entry], config: Mapping[str, Any]
) -> dict[Place, dict[str, Any]]:
    """:func:`anew` of each."""
    head = head_told(blocks.values())
    return {place: anew({**block, **head}, tensors, config) for place, block in blocks.items()}


def anew(
    block: Mapping[str, Any], tensors: Mapping[str, Entry], config: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A quantisation block for a pack of these ``tensors``; what it says of one that is as it was stays.

    ``config`` (``config.json``) says which layers are drafts.
    """
    made = dict(block)
    coded = {name: module_of(name, tensors) for name in pack_format.modules(tensors)}
    storage = made.get("tensor_storage")
    if isinstance(storage, dict):
        own: dict[str, dict[str, Entry]] = {}
        for name, entry in tensors.items():
            own.setdefault(name.rpartition(".")[0], {})[name] = entry
        listed = any("stored_tensors" in value for value in storage.values())
        told = {
            name: _told(storage.get(name, {}), coded.get(name), own[name], listed=listed)
            for name in storage.keys() | coded.keys()
            if name in own
        }
        made["tensor_storage"] = dict(sorted(told.items()))
    if "head_bits" in made and (head := _head_bits(coded, tensors)):
        made["head_bits"] = max(head)
    if "mtp_bits" in made and (drafts := _draft_bits(config or {}, coded, tensors)):
        told = made["mtp_bits"]
        made["mtp_bits"] = told if _between(told, drafts) else round(sum(drafts) / len(drafts), 4)
    if "bits" in made and coded:
        body = {name: module for name, module in coded.items() if name not in _HEADS}
        made["bits"] = round(_mean_bits(body if "head_bits" in made and body else coded), 4)
    _same_book(made, coded)
    return made


def _head_bits(coded: Mapping[str, Module], tensors: Mapping[str, Entry]) -> set[float]:
    """Bits a weight of the head, as exllamav3 counts them; empty where it is another tensor's (tied embeddings)."""
    plain = {_PLAIN_BITS for name in _HEADS if f"{name}.weight" in tensors}
    return plain | {coded[name].bits for name in _HEADS & coded.keys()}


def _draft_bits(config: Mapping[str, Any], coded: Mapping[str, Module], tensors: Mapping[str, Entry]) -> list[float]:
    """Bits a weight of each coded module of the draft layers; where none is coded, of a plain one."""
    found = [module.bits for name, module in coded.items() if is_draft(config, name)]
    plain = not found and any(name.endswith(".weight") and is_draft(config, name) for name in tensors)
    return [_PLAIN_BITS] if plain else found


def _between(told: object, bits: Sequence[float]) -> bool:
    """A mean is never outside of what it is the mean of."""
    return isinstance(told, int | float) and not isinstance(told, bool) and min(bits) <= told <= max(bits)


def _same_book(made: dict[str, Any], coded: Mapping[str, Module]) -> None:
    """Let the block's codebook be that of most weights, where no module has the one it tells."""
    sums: dict[Codebook, int] = {}
    for module in coded.values():
        sums[module.codebook] = sums.get(module.codebook, 0) + module.weights
    if "codebook" not in made or not sums or made["codebook"] in {book.value for book in sums}:
        return
    book = max(sums, key=lambda book: sums[book])
    made["codebook"] = book.value
    made.pop("codebook_marker", None)
    if book in pack_format.MARKERS:
        made["codebook_marker"] = pack_format.MARKERS[book]


def _told(before: Mapping[str, Any], coded: Module | None, own: Mapping[str, Entry], *, listed: bool) -> dict[str, Any]:
    """What a block says of one module, whose tensors are ``own``."""
    stored: dict[str, Any] = {}
    if listed:
        listed_before = before.get("stored_tensors", {})
        stored["stored_tensors"] = {name: _stored_as(entry, listed_before.get(name)) for name, entry in own.items()}
    if coded is None:
        plain = {name: value for name, value in before.items() if name not in ("quant_format", "bits_per_weight")}
        return plain | (stored if "stored_tensors" in before else {})
    same = before.get("bits_per_weight") == coded.bits and before.get("quant_format") == "exl3"
    fits = before.get("codebook", coded.codebook.value) == coded.codebook.value and not any(
        key in before and book is not coded.codebook for key, (book, _) in _MULTIPLIERS.items()
    )
    if same and fits and before.get("stored_tensors", {}).keys() == stored.get("stored_tensors", {}).keys():
        return {**before, **stored}
    book = {} if listed else {"codebook": coded.codebook.value}
    return {"quant_format": "exl3", "bits_per_weight": coded.bits} | book | stored


def _stored_as(entry: Entry, before: object) -> object:
    """What ``stored_tensors`` says of a tensor: ``before`` itself where it says the same, so that memory holds one."""
    now = {"shape": list(entry.shape), "n_bytes": entry.nbytes, "dtype": _TORCH.get(entry.dtype, entry.dtype)}
    return before if repr(before) == repr(now) else now


def configuration_faults(
    folder: Path, modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    """Every place where the pack's configuration and the headers say different things, in either direction."""
    yield from contents_faults(folder, _contents(folder), modules, tensors)


def contents_faults(
    folder: Path, contents: Mapping[str, Mapping[str, Any]], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    """:func:`configuration_faults` of configuration files with these ``contents`` in ``folder``, written or not."""
    config = contents.get(CONFIG, {})
    blocks = blocks_of(contents)
    yield from size_faults(folder / CONFIG, config, modules, tensors)
    yield from _twice(folder, modules, tensors)
    if modules and not any(
        isinstance(block, dict) and block.get("quant_method") == "exl3" for block in blocks.values()
    ):
        yield _fault("coded modules that no configuration declares", str(folder / CONFIG), "quant_method exl3", "none")
    for place, block in blocks.items():
        where = str(folder / str(place))
        if not isinstance(block, dict):
            yield _fault("quantisation is declared in another form", where, "an object", block)
            continue
        silent = "compressed-tensors" if COMPRESSION in place.keys else "exl3"
        if modules and (method := block.get("quant_method", silent)) != "exl3":
            yield _fault("coded modules are declared another way", where, "exl3", method)
        storage = block.get("tensor_storage")
        if isinstance(storage, dict):
            parts = {name: value for name, value in storage.items() if isinstance(value, dict)}
            for name in sorted(storage.keys() - parts.keys()):
                yield _fault("module is declared in another form", f"{where} {name}", "an object", storage[name])
            yield from _modules(where, parts, modules)
            yield from _stored(where, parts, tensors)
        elif storage is not None:
            yield _fault("modules are declared in another form", where, "an object", storage)
        yield from _codebook(where, block, modules)
        yield from _head(where, block, modules, tensors)
        if "mtp_bits" in block:
            yield from _drafts(where, block, _draft_bits(config, modules, tensors))
        yield from _mean(where, block, modules, tensors)


def _twice(folder: Path, modules: Mapping[str, Module], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    """Modules that are coded and plain at once: which one is served nobody can say."""
    plain: dict[str, str] = {}
    for tensor in tensors:
        name, _, part = tensor.rpartition(".")
        if is_plain(part):
            plain[name] = tensor
    for module in sorted(modules):
        whole = _SLICE.sub("", module)
        for name in sorted({module, whole} & plain.keys()):
            yield PackError(
                Fault.MODULE,
                "module is coded and plain at once",
                where=f"{folder} {module}",
                expected="one form",
                found=f"{module}.trellis and {plain[name]}",
            )


def _codebook(where: str, block: Mapping[str, Any], modules: Mapping[str, Module]) -> Iterator[PackError]:
    """What a block says of the pack's codebook as a whole: one that a module has, with its own marker."""
    books = {module.codebook.value: module.codebook for module in modules.values()}
    book, marker = block.get("codebook"), block.get("codebook_marker")
    if not books or (book is None and marker is None):
        return
    known = book if isinstance(book, str) else None
    if book is not None and known not in books:
        yield _fault("configuration and headers disagree on the codebook", where, ", ".join(sorted(books)), book)
        return
    values = [pack_format.MARKERS.get(one) for name, one in books.items() if known in (None, name)]
    if marker is not None and marker not in values:
        yield _fault("configuration and codebook disagree on the marker", where, values, marker)


def _fault(what: str, where: str, expected: object, found: object) -> PackError:
    return PackError(Fault.CONFIGURATION, what, where=where, expected=str(expected), found=str(found))


def _modules(where: str, storage: Mapping[str, Any], modules: Mapping[str, Module]) -> Iterator[PackError]:
    if storage and not any("quant_format" in value for value in storage.values()):
        return  # a list of tensors and no more
    told = {name: value for name, value in storage.items() if value.get("quant_format") == "exl3"}
    for name in sorted(set(told) | set(modules)):
        here, module = f"{where} {name}", modules.get(name)
        if module is None:
            yield _fault("module is declared but not packed", here, "a trellis", "none")
        elif name not in told:
            yield _fault("module is packed but not declared", here, f"{module.bits} bits", "nothing")
        else:
            bits, book = told[name].get("bits_per_weight"), told[name].get("codebook", module.codebook.value)
            if bits != module.bits:
                yield _fault("configuration and headers disagree on a module's bits", here, module.bits, bits)
            for key, (multiplied, marker) in _MULTIPLIERS.items():
                said = told[name].get(key)
                if said is not None and (multiplied is not module.codebook or not _same_word(said, marker)):
                    yield _fault(f"configuration and headers disagree on {key}", here, module.codebook.value, said)
            if book != module.codebook.value:
                yield _fault("configuration and headers disagree on a codebook", here, module.codebook.value, book)


def _same_word(told: object, marker: int) -> bool:
    """Whether a number is the marker, as 32 bits with a sign or without."""
    return isinstance(told, int) and told % 2**32 == marker % 2**32


def _stored(where: str, storage: Mapping[str, Any], tensors: Mapping[str, Entry]) -> Iterator[PackError]:
    """Blocks that list each module's tensors with their shapes."""
    for module, value in storage.items():
        listed = value.get("stored_tensors", {})
        if not isinstance(listed, dict):
            yield _fault("tensors are declared in another form", f"{where} {module}", "an object", listed)
            continue
        for name, told in listed.items():
            entry = tensors.get(name)
            if entry is None:
                yield _fault("tensor is declared but not packed", f"{where} {module}", name, "none")
            elif not isinstance(told, dict) or told.get("shape", list(entry.shape)) != list(entry.shape):
                yield _fault("configuration and headers disagree on a shape", f"{where} {name}", entry.shape, told)


def _mean_bits(modules: Mapping[str, Module]) -> float:
    """Bits a weight over these modules."""
    weights = sum(module.weights for module in modules.values())
    return sum(module.weights * module.bits for module in modules.values()) / weights


def _head(
    where: str, block: Mapping[str, Any], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    told, held = block.get("head_bits"), sorted(_head_bits(modules, tensors))
    if block.get("quant_method", "exl3") != "exl3" or told is None or not held:
        return
    if isinstance(told, bool) or held != [told]:
        yield _fault("configuration and headers disagree on head_bits", where, " and ".join(map(str, held)), told)


def _drafts(where: str, block: Mapping[str, Any], bits: Sequence[float]) -> Iterator[PackError]:
    told = block.get("mtp_bits")
    if told is not None and bits and not _between(told, bits):
        yield _fault("configuration and headers disagree on mtp_bits", where, f"{min(bits)} to {max(bits)}", told)


def _mean(
    where: str, block: Mapping[str, Any], modules: Mapping[str, Module], tensors: Mapping[str, Entry]
) -> Iterator[PackError]:
    bits = block.get("bits")
    if block.get("quant_method") != "exl3" or bits is None or not modules:
        return
    physical = _mean_bits(modules)
    body = {name: module for name, module in modules.items() if name not in _HEADS}
    means = [
        physical,
        *([_mean_bits(body)] if body else []),
    ]  # exllamav3 leaves out the head, which has bits of its own
    number = isinstance(bits, int | float) and not isinstance(bits, bool)
    if not number or not any(
        abs(bits - mean) <= _MEAN_TOLERANCE for mean in means
    ):  # so that NaN, which JSON readers take, is a fault
        by_layer = "; ".join(
            f"{name}: {', '.join(f'K={bits}' for bits in sorted(layer.bits))}"
            for name, layer in layers(tensors, modules).items()
            if layer.bits
        )
        yield _fault(
            "configuration and headers disagree on the bits a weight", where, f"{physical:.4f} ({by_layer})", bits
        )
