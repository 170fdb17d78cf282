"""Cases of the gates about the pack, the configuration, desk parity and what is left behind."""

from __future__ import annotations

from typing import Any

from runner.gates.base import GateInput
from runner.model.desk_measure import ParityCase, ParityMeasure
from runner.model.sample import EngagedMeasure, FieldPair, PackMeasure, RestoreMeasure
from tests.gates.build import (
    DESK,
    DIGEST,
    INCUMBENT,
    NO_RANKS,
    SHARED,
    Case,
    boot,
    given,
    sample,
    window,
)


def pack() -> list[Case]:
    def one(faults: tuple[str, ...] = (), **parameters: str) -> GateInput:
        planned = window("pack", "desk", "pack", "none")
        measure = PackMeasure(header_digest=DIGEST, payload_digest="b" * 64, faults=faults)
        return given(parameters, DESK, [(planned, sample(planned, measure, **NO_RANKS))])

    planned = window("pack", "desk", "pack", "none")
    wrong_kind = given({}, DESK, [(planned, sample(planned, EngagedMeasure(tokens=1), **NO_RANKS))])
    return [
        ("FL-46-link-leaves-the-pack_fail", one(("tokenizer.json is a link out of the pack",)), "FAIL", "tokenizer"),
        ("FL-38-nothing-was-dropped_fail", one(("mtp.fc.weight should be absent",)), "FAIL", "should be absent"),
        (
            "FL-39-case-10-config-says-other-bits_fail",
            one(("config.json says 4 bits, model.layers.3.mlp.experts has 6",)),
            "FAIL",
            "says 4 bits",
        ),
        ("other-payload_fail", one(payload_digest="c" * 64), "FAIL", "payload digest"),
        ("other-headers_fail", one(header_digest="c" * 64), "FAIL", "header digest"),
        ("no-digest-fixed_pass", one(), "PASS", "closed"),
        ("whole_pass", one(header_digest=DIGEST, payload_digest="b" * 64), "PASS", "closed"),
        ("sample-of-another-kind_invalid", wrong_kind, "INVALID", "kind engaged"),
        ("FL-47-evidence-is-gone_invalid", given({}, DESK, [_bare(one())]), "INVALID", "no evidence"),
        ("unknown-parameter_invalid", one(digest="x"), "INVALID", "parameter digest"),
    ]


def _bare(whole: GateInput) -> tuple[Any, Any]:
    return whole.windows[0], whole.samples[0].model_copy(update={"evidence": ()})


def resolved() -> list[Case]:
    def one(parameters: dict[str, Any] | None = None, **changes: Any) -> GateInput:
        planned = window("finish", "shared-a", "finish")
        return given(parameters or {}, SHARED, [(planned, None)], [boot("shared-a", **changes)])

    asked = {"max_model_len": 2048, "dtype": "float32"}
    refused = boot("knock-out-decline", ended="refused", resolved={})
    died = refused.model_copy(update={"ended": "died"})
    planned = window("finish", "shared-a", "finish")
    knocked = window("knock-out-decline", "knock-out-decline", "knock-out-decline", "none")
    roles = SHARED | {"knock-out-decline": "knock-out-decline"}
    return [
        ("window-clamped_fail", one(resolved=asked | {"max_model_len": 1024}), "FAIL", "max_model_len"),
        (
            "FL-04-flag-without-reader_fail",
            one(requested=asked | {"dense_group": 4}),
            "FAIL",
            "dense_group was asked as 4, the engine says (absent)",
        ),
        (
            "case-20-echoed-but-not-effective_fail",
            one(requested=asked | {"fuse_gemm_comms": True}, resolved=asked | {"fuse_gemm_comms": False}),
            "FAIL",
            "fuse_gemm_comms was asked as true, the engine says false",
        ),
        (
            "FL-10-baked-plugin_fail",
            one(requested=asked | {"plugin": "b"}, resolved=asked | {"plugin": "a"}),
            "FAIL",
            "plugin",
        ),
        ("as-asked_pass", one(), "PASS", "every requested field"),
        ("named-exception_pass", one({"ignored": ["seed"]}, requested=asked | {"seed": 1}), "PASS", "every requested"),
        (
            "knock-out-refused_pass",
            given({}, roles, [(planned, None), (knocked, None)], [boot("shared-a"), refused]),
            "PASS",
            "every requested",
        ),
        (
            "boot-of-another-gate_pass",
            given({}, SHARED | {"one-row": "one-row"}, [(planned, None)], [boot("shared-a")]),
            "PASS",
            "every requested",
        ),
        (
            "knock-out-died_invalid",
            given({}, roles, [(planned, None), (knocked, None)], [boot("shared-a"), died]),
            "INVALID",
            "no resolved configuration",
        ),
        ("unknown-parameter_invalid", one({"ignore": ["seed"]}), "INVALID", "parameter ignore"),
        ("no-readback_invalid", one(resolved={}), "INVALID", "no resolved configuration"),
        ("never-asked_invalid", one(requested={}), "INVALID", "no requested configuration"),
        (
            "boot-without-record_invalid",
            given({}, SHARED | {"x": "shared"}, [(planned, None), (window("w", "x", "finish"), None)], [boot("x")]),
            "INVALID",
            "left no record",
        ),
        ("refused-though-shared_invalid", one(ended="refused", resolved={}), "INVALID", "no resolved"),
        ("nothing-booted_invalid", given({}, SHARED, [(planned, None)], []), "NOT_RUN", "nothing was booted"),
        ("only-a-desk_invalid", given({}, DESK, [(window("p", "desk", "pack"), None)]), "INVALID", "no boot"),
    ]


def parity() -> list[Case]:
    def one(parameters: dict[str, Any] | None = None, **changes: Any) -> GateInput:
        good = ParityCase(
            id="k2-m4", rows=4, bits=2, relative_error="2e-3", norm_ratio="1.0002", finite=True, repeat_equal=True
        )
        other = good.model_copy(update={"id": "k3-m16", "rows": 16, "bits": 3})
        planned = window("parity", "desk", "parity", "none")
        measure = ParityMeasure(cases=(good, other.model_copy(update=changes)))
        return given(parameters or {}, DESK, [(planned, sample(planned, measure, **NO_RANKS))])

    nothing = one()
    empty = nothing.samples[0].model_copy(update={"measure": ParityMeasure(cases=())})
    return [
        ("FL-12-half-of-k_fail", one(relative_error="0.67", norm_ratio="0.755"), "FAIL", "relative error 0.67"),
        ("FL-17-norm-only_fail", one(norm_ratio="0.98"), "FAIL", "norm ratio 0.98"),
        ("norm-too-large_fail", one(norm_ratio="1.02"), "FAIL", "norm ratio 1.02"),
        ("FL-22-two-calls-two-outputs_fail", one(repeat_equal=False), "FAIL", "two outputs"),
        ("case-38-one-value-is-nan_fail", one(finite=False), "FAIL", "not finite"),
        ("case-38-rows-of-zeros_fail", one(relative_error="1", norm_ratio="0"), "FAIL", "relative error 1"),
        ("case-38-twice-the-reference_fail", one(relative_error="1", norm_ratio="2"), "FAIL", "norm ratio 2"),
        (
            "case-35-one-expert-for-every-row_fail",
            one(id="layer 1, 8 rows of 6", rows=8, relative_error="0.83", norm_ratio="0.41"),
            "FAIL",
            "layer 1, 8 rows of 6",
        ),
        ("FL-18-rounding-of-the-output_pass", one(relative_error="1.95e-3"), "PASS", "every case"),
        ("FL-13-every-layer-declined_fail", one(declined="shape"), "FAIL", "declined shape"),
        ("just-outside_fail", one(relative_error="2.1e-3"), "FAIL", "relative error"),
        ("inside-the-limits_pass", one({"rows": [4, 16], "cases": 2}), "PASS", "every case"),
        ("at-the-limits_pass", one(relative_error="2e-3", norm_ratio="0.99"), "PASS", "every case"),
        ("allowed-decline_pass", one({"allowed_declines": ["bits"]}, declined="bits"), "PASS", "every case"),
        ("rows-above-its-limit_pass", one(declined="rows-above-limit"), "PASS", "every case"),
        (
            "no-decline-allowed_fail",
            one({"allowed_declines": []}, declined="rows-above-limit"),
            "FAIL",
            "rows-above-limit",
        ),
        ("SF-05-rows-untested_invalid", one({"rows": [4, 6, 16]}), "INVALID", "[6]"),
        (
            "rows-only-declined_invalid",
            one({"rows": [16], "allowed_declines": ["bits"]}, declined="bits"),
            "INVALID",
            "[16]",
        ),
        ("too-few-cases_invalid", one({"cases": 3}), "INVALID", "2 cases ran"),
        (
            "FL-09-case-38-nothing-compared_invalid",
            given({}, DESK, [(nothing.windows[0], empty)]),
            "INVALID",
            "0 cases ran",
        ),
    ]


def restore() -> list[Case]:
    def one(
        leftovers: tuple[str, ...] = (), kv: str = "396656", parameters: dict[str, Any] | None = None, **changes: Any
    ) -> GateInput:
        planned = window("restore", "desk", "restore", "none")
        fields = (FieldPair(name="kv_tokens", requested="396656", resolved=kv),)
        measure = RestoreMeasure(leftovers=leftovers, fields=fields)
        records = [boot("desk", ()), boot("shared-a", **changes)]
        taken = sample(planned, measure, INCUMBENT, **NO_RANKS)
        return given(parameters or {}, DESK | SHARED, [(planned, taken)], records)

    planned = one().windows[0]
    return [
        ("FL-10-another-plugin-came-back_fail", one(kv="395069"), "FAIL", "kv_tokens stood at 396656"),
        ("port-still-taken_fail", one(("port 8011 is still taken",)), "FAIL", "port 8011"),
        ("shared-memory-left_fail", _leftover(), "FAIL", "psm_1"),
        ("nothing-left_pass", one(), "PASS", "nothing was left"),
        ("named-exception_pass", one(kv="1", parameters={"ignored": ["kv_tokens"]}), "PASS", "nothing was left"),
        ("FL-10-mount-missing_fail", _container(mount="(absent)"), "FAIL", "container.mount./plugin stood at"),
        ("FL-10-mount-too-many_fail", _container(mounts="9"), "FAIL", "container.mounts stood at 8 and is 9"),
        ("FL-10-log-line-of-another-tree_fail", _container(lines="1"), "FAIL", "F2 DENSE_GROUP"),
        ("variable-reset_fail", _container(variable="0"), "FAIL", "VLLM_PLUGINS"),
        ("container-came-back_pass", _container(), "PASS", "nothing was left"),
        ("not-looked_invalid", given({}, DESK, [(planned, None)]), "NOT_RUN", "no sample"),
        ("fault_invalid", _faulty(one()), "INVALID", "could not look"),
    ]


def _container(
    *, mount: str = "/srv/plugin read-only", mounts: str = "8", lines: str = "0", variable: str = "carve_exl3"
) -> GateInput:
    """A docker seat's standing container, counted."""
    planned = window("restore", "desk", "restore", "none")
    fields = tuple(
        FieldPair(name=name, requested=requested, resolved=resolved)
        for name, requested, resolved in (
            ("container.mount./plugin", "/srv/plugin read-only", mount),
            ("container.mounts", "8", mounts),
            ("environment.VLLM_PLUGINS", "carve_exl3", variable),
            ("log lines with 'F2 DENSE_GROUP'", "0", lines),
        )
    )
    taken = sample(planned, RestoreMeasure(leftovers=(), fields=fields), INCUMBENT, **NO_RANKS)
    return given({}, DESK | SHARED, [(planned, taken)], [boot("desk", ()), boot("shared-a")])


def _leftover() -> GateInput:
    planned = window("restore", "desk", "restore", "none")
    taken = sample(planned, RestoreMeasure(leftovers=(), fields=()), INCUMBENT, **NO_RANKS)
    return given({}, DESK | SHARED, [(planned, taken)], [boot("shared-a", leftovers=("/dev/shm/psm_1",))])


def _faulty(whole: GateInput) -> GateInput:
    taken = whole.samples[0].model_copy(update={"faults": ("could not look",)})
    return whole.model_copy(update={"samples": (taken,)})
