"""The fixed boots of a plan and the helper that makes windows in them, with what has to run there."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from runner.model.base import ROUTED, Arm, Operator
from runner.model.order import Candidate, Fact, GateRequest, Primary, Target
from runner.model.plan import BootRole, Expectation, PlannedBoot, PlannedWindow
from runner.model.seat import SeatManifest

INCUMBENT_ONLY, CANDIDATE_ONLY, FORCING, ONE_ROW, TRACED, SPECULATING, PLAIN, EAGER, DESK = (
    "incumbent-only",
    "candidate-only",
    "forcing",
    "one-row",
    "traced",
    "speculating",
    "plain",
    "eager",
    "desk",
)
SPECULATING_PRODUCT = "speculating-product"
"""A recipe's own pack with speculation."""
SHARED = ("shared-a", "shared-b")
KNOCK_OUTS = ("knock-out-decline", "knock-out-zero")
BOOT_ORDER = (
    DESK,
    INCUMBENT_ONLY,
    *SHARED,
    CANDIDATE_ONLY,
    FORCING,
    ONE_ROW,
    PLAIN,
    SPECULATING,
    SPECULATING_PRODUCT,
    EAGER,
    TRACED,
    *KNOCK_OUTS,
)
PAIR_BOOT = "pair-"
"""How the boots of ``pairing: boot`` begin: one for each block of each quad."""
NO_READBACK = frozenset({DESK, KNOCK_OUTS[0]})
"""Boots without a live engine to read back: the desk, and the one that strict has to refuse."""
FORCING_ARGUMENTS: dict[str, JsonValue] = {"logits_processors": "serve.witness.force:Force"}
"""Engine arguments that bring the logits processor which forces the next token."""
ONE_ROW_ARGUMENTS: dict[str, JsonValue] = {"max_num_batched_tokens": 1, "max_num_seqs": 1}
"""Engine arguments with which every step holds one row, so that also a prompt is read row by row."""
SPECULATIVE_CONFIG = "speculative_config"
"""Engine argument: how drafts are made; null for no speculation."""
WIDE = 65
"""Stands for every launch of more than 64 rows."""


def boot_order(name: str) -> tuple[int, int, int]:
    """Where a boot stands in the plan; those of a quad follow the shared ones, in order of quad and block."""
    if name.startswith(PAIR_BOOT):
        quad, block = name.removeprefix(PAIR_BOOT).split("-")
        return BOOT_ORDER.index(SHARED[-1]), int(quad), int(block)
    return BOOT_ORDER.index(name), 0, 0


def desk_builds(variant: str) -> tuple[str, ...]:
    """Libraries that a GPU desk needs for ``variant``: itself, wrong on purpose, without decoding; the desk's own."""
    return (variant, f"{variant}-watermark", f"{variant}-null-decode", "ceilings", "planted")


@dataclass(frozen=True)
class Layout:
    """One order on one seat, as far as windows need to know."""

    target: Target
    manifest: SeatManifest
    candidate: Candidate | None
    """None for a ``gate`` order: both arms are the incumbent."""
    primary: Primary | None
    watermarked: bool = False
    """The order has the gate that needs the deliberately wrong build."""
    claims: tuple[Fact, ...] = ()
    """Standing facts of the order."""
    on_the_desk: bool = True
    """The order has a gate that loads the candidate outside the engine."""
    recipe: bool = False
    """Both arms run the incumbent's kernels; the candidate's is a boot of the recipe's product."""

    speculation: JsonValue = None
    """How the order's windows speculate, where the seat itself does not."""

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Both arms, or the incumbent alone."""
        return ("incumbent", "candidate") if self.compares else ("incumbent",)

    @property
    def speculates(self) -> bool:
        """Some boot of the seat can speculate."""
        return bool(self.speculation or self.manifest.arguments.get(SPECULATIVE_CONFIG))

    @property
    def unspeculating(self) -> str:
        """A boot without speculation: one of the others, or where the seat speculates one of its own."""
        return PLAIN if self.manifest.arguments.get(SPECULATIVE_CONFIG) else SHARED[1]

    @property
    def compares(self) -> bool:
        """There are two arms that differ."""
        return self.candidate is not None or self.recipe

    def takes(self, rows: int) -> bool:
        """Whether steps of so many rows enter the candidate; a recipe's product runs them all."""
        return self.candidate is None or self.candidate.min_rows <= rows <= self.candidate.max_rows

    @property
    def incumbent(self) -> str:
        return self.candidate.incumbent if self.candidate else "incumbent"

    @property
    def operator(self) -> Operator:
        """What is declared and counted."""
        return self.candidate.operator if self.candidate else ROUTED

    @property
    def variants(self) -> dict[Arm, str]:
        """The variant behind each arm."""
        return {"incumbent": self.incumbent, "candidate": self.candidate.variant if self.candidate else self.incumbent}

    @property
    def watermark(self) -> str:
        return f"{self.variants['candidate']}-watermark"

    def boot(self, name: str) -> PlannedBoot:
        """The planned boot of one of the names above."""
        if self.recipe and name != ONE_ROW:
            return self._recipe_boot(name)
        role: BootRole
        libraries: tuple[str, ...] = (self.candidate.variant,) if self.candidate else ()
        forcing = self._forcing
        arguments: dict[str, JsonValue] = {}
        strict = self.candidate.strict if self.candidate else 0
        if name in SHARED or name.startswith(PAIR_BOOT):
            role = "shared"
        elif name == INCUMBENT_ONLY:
            role, libraries, strict = "incumbent-only", (), 0
        elif name == DESK:
            role, strict = "desk", 0
            libraries = libraries if self.on_the_desk else ()
            if self.manifest.gpu and self.on_the_desk and self.candidate:
                libraries = desk_builds(self.candidate.variant)
        elif name == CANDIDATE_ONLY:
            role = "candidate-only"
        elif name == FORCING:
            role, arguments = "forcing", forcing
            libraries = (*libraries, self.watermark) if self.watermarked else libraries
        elif name == TRACED:
            role = "traced"
        elif name == EAGER:
            role, arguments = "eager", {"enforce_eager": True}
        elif name == PLAIN:
            role, arguments = "plain", {SPECULATIVE_CONFIG: None}
        elif name == SPECULATING:
            role, arguments = "speculating", self._speculating
        elif name == ONE_ROW:
            role, libraries, strict, arguments = "one-row", (), 0, ONE_ROW_ARGUMENTS
        elif name == KNOCK_OUTS[0]:
            role, strict = "knock-out-decline", 2
        else:
            role, strict, arguments = "knock-out-zero", 2, forcing
        seconds = 0 if role == "desk" else self.manifest.boot_seconds
        return PlannedBoot(id=name, role=role, libraries=libraries, strict=strict, arguments=arguments, seconds=seconds)

    @property
    def _forcing(self) -> dict[str, JsonValue]:
        """The toy engine forces tokens in every boot; on a GPU a step must not begin before the last one's tokens."""
        if self.manifest.adapter == "fake":
            return {}
        return FORCING_ARGUMENTS | ({"async_scheduling": False} if self.manifest.gpu else {})

    @property
    def _speculating(self) -> dict[str, JsonValue]:
        own = self.manifest.arguments.get(SPECULATIVE_CONFIG)
        return {SPECULATIVE_CONFIG: own or self.speculation}

    def _recipe_boot(self, name: str) -> PlannedBoot:
        """One boot for each arm, and the desk, which reads the product."""
        roles: dict[str, BootRole] = {
            INCUMBENT_ONLY: "incumbent-only",
            CANDIDATE_ONLY: "candidate-only",
            DESK: "desk",
            TRACED: "traced",
            SPECULATING: "speculating",
            SPECULATING_PRODUCT: "speculating",
        }
        arguments = self._speculating if roles[name] == "speculating" else self._forcing
        return PlannedBoot(
            id=name,
            role=roles[name],
            libraries=(),
            strict=0,
            arguments={} if name == DESK else arguments,
            product=name not in (INCUMBENT_ONLY, SPECULATING),
            seconds=0 if name == DESK else self.manifest.boot_seconds,
        )

    def _boot_of(self, boot: str, arm: str) -> str:
        """Where a window opens: a recipe's arms cannot share a boot, so each has its own for all its windows."""
        if self.recipe and boot == SPECULATING:
            return SPECULATING_PRODUCT if arm == "candidate" else SPECULATING
        if self.recipe and boot in (*SHARED, FORCING):
            return CANDIDATE_ONLY if arm == "candidate" else INCUMBENT_ONLY
        return boot

    def expects(self, arm: Arm | str) -> tuple[Expectation, ...]:
        """Which variant runs which rows while ``arm`` is switched on; nothing is claimed where no arm is."""
        if arm == "none":
            return ()
        operator = self.operator
        if self.candidate is None or arm == "incumbent":
            return (Expectation(variant=self.incumbent, rows_min=1, rows_max=WIDE, operator=operator),)
        low, high = self.candidate.min_rows, self.candidate.max_rows
        spans: list[tuple[str, int, int, str | None]] = [(self.candidate.variant, low, min(high, WIDE), None)]
        spans += [(self.incumbent, 1, low - 1, "rows-below-limit")] if low > 1 else []
        spans += [(self.incumbent, high + 1, WIDE, "rows-above-limit")] if high < WIDE else []
        return tuple(
            Expectation(variant=variant, rows_min=first, rows_max=last, decline=reason, operator=operator)
            for variant, first, last, reason in spans
        )

    def window(
        self,
        name: str,
        boot: str,
        instrument: str,
        arm: Arm | str,
        arguments: dict[str, JsonValue],
        *,
        seconds: int,
        control: bool = False,
    ) -> PlannedWindow:
        """One window with its expectations."""
        return PlannedWindow.model_validate(
            {
                "id": name,
                "boot": self._boot_of(boot, arm),
                "instrument": instrument,
                "arm": arm,
                "control": control or arm in ("incumbent", "none"),
                "expects": self.expects(arm),
                "arguments": arguments,
                "seconds": seconds,
            }
        )


def amount(request: GateRequest, name: str, default: int) -> int:
    """A whole number of the gate's ``windows`` block (documents, tokens, trials), or its default."""
    value = request.windows.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


@dataclass(frozen=True)
class Made:
    """A gate's own windows, and those of others it reads too."""

    own: tuple[PlannedWindow, ...] = ()
    reads_every_candidate_window: bool = False
    in_every_boot: str = ""
    """Instrument of a window that every engine boot of the plan opens first."""


def both_arms(
    layout: Layout,
    name: str,
    boot: str,
    arguments: dict[str, JsonValue],
    seconds: int,
    *,
    instrument: str = "",
    rows: int = 1,
) -> tuple[PlannedWindow, ...]:
    """The same material through the incumbent and, where there is one, the candidate; ``rows`` is what a step holds."""
    instrument = instrument or f"{name}@1"
    arguments = arguments | {"material": name}
    windows = [layout.window(f"{name}-incumbent", boot, instrument, "incumbent", arguments, seconds=seconds)]
    if layout.compares:
        outside = not layout.takes(rows)
        arguments = arguments | {"reference_window": f"{name}-incumbent"}
        windows.append(
            layout.window(
                f"{name}-candidate", boot, instrument, "candidate", arguments, seconds=seconds, control=outside
            )
        )
    return tuple(windows)
