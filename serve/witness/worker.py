"""What the witness answers inside a worker: vLLM's ``--worker-extension-cls serve.witness.worker.WitnessExtension``.

The class is mixed into vLLM's worker, so every name carries ``carve_``; each method runs on every rank and returns JSON
values. Switching and perturbing happen between requests: vLLM runs a remote call and a model step one after the other.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import vllm

import serve.plugin
import serve.witness
from recipe.patch import tree_digest
from recipe.patch_set import MARKER
from runner.digest import sha256_bytes, sha256_file, sha256_package
from runner.model.boot import RankIdentity
from serve.witness.environment import read_back
from serve.witness.graphs import vllm_wrappers
from serve.witness.held import weights_bytes
from serve.witness.mark import print_mark
from serve.witness.witness import ArgumentError, Witness, current


class WitnessExtension:
    """Mixed into the worker of each rank."""

    vllm_config: Any
    model_runner: Any

    def carve_counters(self) -> dict[str, Any]:
        """This rank's ``RankCounters``."""
        return _serving().counters().model_dump(mode="json")

    def carve_identity(self) -> dict[str, Any]:
        """This rank's ``RankIdentity``, from what is mapped and imported, not from what was asked for."""
        witness = current()
        mapped = mapped_libraries()
        identity = RankIdentity(
            rank=witness.rank,
            pid=os.getpid(),
            libraries={
                name: sha256_file(library.path)
                for name, library in witness.libraries.items()
                if str(library.path.resolve()) in mapped
            },
            trees={
                "plugin": sha256_package(Path(serve.plugin.__path__[0])),
                "witness": sha256_package(Path(serve.witness.__path__[0])),
            }
            | _patched_modules(),
            weights=witness.weights_digest(dict(self.model_runner.model.named_parameters())),
            devices=witness.processor.uuids(),
        )
        return identity.model_dump(mode="json")

    def carve_resolved(self) -> dict[str, Any]:
        """The live engine's configuration under the names of its arguments."""
        config, witness = self.vllm_config, current()
        blocks = int(self.model_runner.kv_cache_config.num_blocks)
        speculative = config.speculative_config
        return {
            **_distribution(),
            "device_type": str(config.device_config.device_type),
            "model": str(config.model_config.model),
            "served_model_name": str(config.model_config.served_model_name),
            "dtype": str(config.model_config.dtype).removeprefix("torch."),
            "quantization": str(config.model_config.quantization),
            "max_model_len": int(config.model_config.max_model_len),
            "enforce_eager": bool(config.model_config.enforce_eager),
            "max_logprobs": int(config.model_config.max_logprobs),
            "seed": int(config.model_config.seed),
            "max_num_seqs": int(config.scheduler_config.max_num_seqs),
            "max_num_batched_tokens": int(config.scheduler_config.max_num_batched_tokens),
            "enable_chunked_prefill": bool(config.scheduler_config.enable_chunked_prefill),
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "tensor_parallel_size": int(config.parallel_config.tensor_parallel_size),
            "disable_custom_all_reduce": bool(config.parallel_config.disable_custom_all_reduce),
            "enable_prefix_caching": bool(config.cache_config.enable_prefix_caching),
            "kv_cache_dtype": str(config.cache_config.cache_dtype),
            "cudagraph_capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
            "block_size": int(config.cache_config.block_size),
            "kv_cache_memory_bytes": config.cache_config.kv_cache_memory_bytes,
            "kv_cache_tokens": blocks * int(config.cache_config.block_size),
            "logits_processors": ",".join(str(name) for name in config.model_config.logits_processors or ()),
            "speculative_config": _speculation(speculative),
            "speculative_method": str(speculative.method) if speculative else "",
            "num_speculative_tokens": int(speculative.num_speculative_tokens) if speculative else 0,
            "compilation_config": _compilation(config.compilation_config),
            "gpu_memory_utilization": float(config.cache_config.gpu_memory_utilization),
            "scratch_bytes": witness.processor.scratch_bytes(),
            **witness.processor.memory(),
            "variant": witness.variant,
            "strict": int(os.environ.get("CARVE_STRICT", "0")),
            "weights_bytes": weights_bytes(witness, dict(self.model_runner.model.named_parameters())),
            **read_back(),
        }

    def carve_switch(self, variant: str, ranks: list[int] | None) -> dict[str, Any]:
        """Run another variant from the next step on, on the named ranks (null: all); captures graphs where it must."""
        witness = _serving()
        witness.switch(variant, ranks)
        if witness.processor.replays:
            witness.graphs.follow(witness.pattern, vllm_wrappers(), self._carve_capture)
        return {"rank": witness.rank, "variant": witness.variant}

    def _carve_capture(self) -> None:
        """The engine's own warm-up and capture, as at its start, counted apart."""
        processor = current().processor
        processor.serve(False)
        try:
            self.model_runner.capture_model()
        finally:
            processor.serve(True)

    def carve_perturb(self, rank: int, layer: str, expert: int, projection: str, factor: float) -> dict[str, Any]:
        """On one rank, serve one expert's projection with its output scales multiplied."""
        witness = current()
        module = witness.find_experts(layer)
        if not 0 <= expert < len(module.experts):
            raise ArgumentError(f"{layer} has experts 0 to {len(module.experts) - 1}, not {expert}")
        if witness.rank == rank:
            module.perturb(expert, projection, factor)
        return {"rank": witness.rank, "perturbed": witness.rank == rank}

    def carve_unperturb(self) -> dict[str, Any]:
        """Serve every expert as it was loaded."""
        witness = current()
        for module in witness.experts:
            module.unperturb()
        return {"rank": witness.rank, "perturbed": False}

    def carve_mark(self, text: str) -> dict[str, Any]:
        """Print ``text`` behind everything that this rank has printed."""
        print_mark(text)
        return {"rank": current().rank}


def _speculation(config: Any) -> dict[str, Any] | None:
    """How drafts are made, under the names in which it is asked for; None without speculation."""
    if not config:
        return None
    names = ["method", "num_speculative_tokens"]
    names += ["prompt_lookup_max", "prompt_lookup_min"] if config.method == "ngram" else []
    return {name: getattr(config, name) for name in names}


_SERVING: set[int] = set()


def _serving() -> Witness:
    """The witness, which counts as served whatever runs after the first call: an engine answers once it has started."""
    witness = current()
    if id(witness) not in _SERVING:
        _SERVING.add(id(witness))
        witness.processor.serve(True)
    return witness


def _compilation(config: Any) -> dict[str, Any]:
    """What decides which steps are replayed."""
    mode = getattr(config.cudagraph_mode, "name", config.cudagraph_mode)
    return {
        "cudagraph_capture_sizes": list(config.cudagraph_capture_sizes or ()),
        "cudagraph_mode": str(mode),
        "cudagraph_num_of_warmups": int(config.cudagraph_num_of_warmups),
    }


def _distribution() -> dict[str, str]:
    """The distribution that owns the imported ``vllm``, by its RECORD."""
    package = Path(vllm.__file__).parent
    for records in package.parent.glob("vllm*.dist-info/RECORD"):
        if b"vllm/__init__.py," in (data := records.read_bytes()):
            name, _, version = records.parent.name.removesuffix(".dist-info").rpartition("-")
            return {
                "distribution": name.replace("_", "-"),
                "distribution_version": version,
                "distribution_record": sha256_bytes(data),
            }
    return {"distribution": "", "distribution_version": "", "distribution_record": ""}


def _patched_modules() -> dict[str, str]:
    """The tree ``product``: every imported module that bears a patch's marker, whoever patched it; none without one."""
    found = {}
    for name, module in list(sys.modules.items()):
        markers = getattr(module, "__dict__", {}).get(MARKER)
        if markers:
            file = Path(module.__file__ or "")
            place = "/__init__.py" if file.name == "__init__.py" else ".py"
            found[name.replace(".", "/") + place] = (sha256_file(file), markers)
    return {"product": tree_digest(found)} if found else {}


def mapped_libraries() -> frozenset[str]:
    """Paths of the files mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return frozenset(parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6)
