"""A sound order with facts, a floor and a planned gate, and a way to break one thing in it."""

from __future__ import annotations

from runner.check import check
from runner.checks.fault import Fault
from runner.model.order import parse_order
from runner.steps.seats import load_manifest

SOUND = """schema_version: 1
id: sound
kind: kernel
title: A sound order
date: "2026-11-30"
people: {issuer: maintainers, approver: maintainers}
intent:
  goal: Show one thing.
  why: A test asks for it.
  definition_of_done: The test passes.
  expected_gain: {low: 1.1, high: 1.3, unit: ratio, basis: a share of the step, share: 0.31, rests_on: [time]}
target: {seat: fake, pack: toy}
candidate: {variant: lna2, sources: [kernels/cpu/lna2.cpp], files_allowed: [kernels/cpu/lna2.cpp], max_rows: 64}
design: {prior_art: [{what: the incumbent, where: exllamav3, verdict: slow}]}
primary: {metric: decode-rate, margin: 0.05, pairs: 6}
gates:
  - name: resolved
  - name: engaged
  - name: speed
  - name: kernel-time
    planned: cold time of a launch
    rests_on: [bytes]
    measure:
      place: seat
      instrument: {path: bench.py, argv: [--cold]}
      thresholds:
        - {metric: launch, op: "<=", pass_at: 88, unit: µs, floor: least}
        - {metric: gain, op: ">=", pass_at: 1.15, unit: ratio}
      needs: [gpu]
  - {name: ppl-decode, parameters: {margin: 0.005}}
  - name: restore
kill_lines: [{gate: kernel-time, metric: launch, op: ">", value: 190, unit: µs, rests_on: [bytes]}]
floors: [{id: least, what: 23 experts, bytes: 18688512, bandwidth: 270, microseconds: 69.2, rests_on: [bytes]}]
capability: [{name: sanitizer, available: "no", substitute_if_absent: another host}]
facts:
  - id: bytes
    statement: Bytes of an expert.
    value: 812544
    unit: bytes
    label: measured
    scope: one rank of eight
    probe: {kind: expert-bytes, hidden: 4096, intermediate: 256, bits: 2}
  - {id: time, statement: A launch., value: 229, unit: µs, label: measured, scope: seat, evidence: {file: PLAN.md}}
  - {id: old, statement: It was 0.86 MB., value: 0.86, label: estimate, status: superseded, superseded_by: bytes}
  - id: wrong
    statement: 46 steps.
    value: 46
    label: estimate
    status: refuted
    probe: {kind: calculation, expression: "24"}
added: [{field: primary.pairs, why: nobody had asked for pairs}]
"""


def faults_of(old: str = "", new: str = "", *, seat: str = "fake") -> tuple[Fault, ...]:
    """Faults of the sound order with ``old`` replaced by ``new``."""
    assert SOUND.count(old) >= 1
    return check(parse_order(SOUND.replace(old, new, 1)), load_manifest(seat))


def fields(faults: tuple[Fault, ...]) -> dict[str, str]:
    """Message by dotted field."""
    return {".".join(map(str, fault.path)): fault.message for fault in faults}
