"""Parity on the device: every group of problems against double precision, then what a single call cannot show.

A case that asks a yes-or-no question (replays of a graph, two streams, refusals, the library's count, kernel names, the
deliberately wrong build) has error 0 for yes and 1 for no, so that one limit judges them all.
"""

from __future__ import annotations

import torch

from carve_kernels.desk.gpu import compare
from carve_kernels.desk.gpu.workload import Group, Problem, Workload

Fact = dict[str, str | int | bool]
REPLAYS, VARIATIONS = 1000, 4
STREAM_ROUNDS = 100
WATERMARK = (0.008, 0.012)
"""The deliberately wrong build is off by 1 %; the reading must say so."""


def run(workload: Workload, watermark: Workload, seed: int) -> list[Fact]:
    """Every case of the workload. ``watermark`` has the library that is wrong on purpose."""
    before, _ = workload.counted()
    launched, facts = 0, []
    for group in workload.parity(seed):
        facts.append(_measured(workload, group))
        launched += 2 * len(group.problems)
    counted, _ = workload.counted()
    problems = workload.small(seed)
    facts += [
        _answer("counted", counted - before == launched, f"{launched} launched, {counted - before} counted"),
        *(_answer(f"refusal-{name}", wanted == found, found) for name, (wanted, found) in workload.refusals().items()),
        *_wrong_calls(workload),
        *(_answer(name, yes == no, no) for name, (yes, no) in workload.questions(seed).items()),
        *_output_types(workload, problems),
        _not_finite(problems),
        _replays(workload, problems),
        _streams(problems),
        _kernels(workload, problems),
        _watermark(watermark, seed),
    ]
    return facts


def _measured(workload: Workload, group: Group) -> Fact:
    worst, same, declined = compare.Reading(0.0, 1.0, True), True, ""
    of_pairs = compare.Reading(0.0, 1.0, True)
    for problem in group.problems:
        outputs = [problem.outputs(), problem.outputs()]
        for out in outputs:
            workload.poison_scratch()
            declined = declined or problem.launch(out)
        if declined:
            break
        worst = worst.worse(compare.reading(outputs[0], problem.expected()))
        if group.of_pairs:
            of_pairs = of_pairs.worse(compare.reading(outputs[0], problem.expected(of_pairs=True)))
        same = same and compare.equal(*outputs)
    return {
        "id": group.name,
        "rows": group.rows,
        "bits": group.bits,
        "relative_error": compare.decimal(worst.relative_error),
        "norm_ratio": compare.decimal(worst.norm_ratio),
        "finite": worst.finite,
        "repeat_equal": same,
        "declined": declined,
        **({"pair_error": compare.decimal(of_pairs.relative_error)} if group.of_pairs and not declined else {}),
    }


def _wrong_calls(workload: Workload) -> list[Fact]:
    """Every wrong call of the C ABI is refused for its own reason, and of all of them only the right one ran."""
    before, _ = workload.counted()
    facts = [
        _answer(f"call-{name}", wanted == found, found or "ran")
        for name, (wanted, found) in workload.wrong_calls().items()
    ]
    after, _ = workload.counted()
    return [*facts, _answer("calls-that-ran", after - before == 1, after - before)]


def _output_types(workload: Workload, problems: list[Problem]) -> list[Fact]:
    """Half and bfloat16 outputs are the float32 output rounded, bit by bit, of half and bfloat16 inputs."""
    facts = []
    for dtype in (torch.float16, torch.bfloat16):
        wrong = []
        for problem in [problem.copy(kind) for problem in problems for kind in (torch.float16, torch.bfloat16)]:
            whole, rounded = _launched(problem), problem.outputs(dtype)
            workload.poison_scratch()
            declined = problem.launch(rounded)
            if declined or not compare.equal(rounded, [each.to(dtype) for each in whole]):
                wrong.append(declined or f"{problem.rows} rows of {problem.x.dtype}")
        facts.append(_answer(f"output-{str(dtype).removeprefix('torch.')}", not wrong, wrong))
    return facts


def _not_finite(problems: list[Problem]) -> Fact:
    """NaN and infinity in a row of x make NaN of that row of every output, and leave the others' bits alone."""
    wrong = []
    for problem in problems:
        clean = _launched(problem)
        for value in (torch.nan, torch.inf, -torch.inf):
            for row in {0, problem.rows // 2, problem.rows - 1}:
                ill = problem.copy()
                ill.x[row, row + 1] = value
                others = [number for number in range(problem.rows) if number != row]
                for out, true in zip(_launched(ill), clean, strict=True):
                    if not bool(out[row].isnan().all()) or not compare.equal([out[others]], [true[others]]):
                        wrong.append(f"{value} in row {row} of {problem.rows}")
    return _answer("not-finite-rows", not wrong, sorted(set(wrong)))


def _answer(name: str, yes: bool, detail: object = "") -> Fact:
    return {
        "id": name if yes else f"{name}: {detail}"[:200],
        "rows": 0,
        "bits": 0,
        "relative_error": "0" if yes else "1",
        "norm_ratio": "1",
        "finite": True,
        "repeat_equal": True,
        "declined": "",
    }


def _replays(workload: Workload, problems: list[Problem]) -> Fact:
    """A captured launch, replayed with other inputs, outputs and scratch full of NaN, equals the direct launch.

    Bit by bit; nothing is allocated meanwhile, and outputs and scratch stay where they were.
    """
    stream, wrong, done = torch.cuda.Stream(), 0, 0
    count = REPLAYS // len({problem.rows for problem in problems}) + 1
    for rows in sorted({problem.rows for problem in problems}):
        one = next(problem for problem in problems if problem.rows == rows)
        variations = one.variations(VARIATIONS)
        with torch.cuda.stream(stream):
            direct = [_launched(problem) for problem in variations]
            played, out = one.copy(), one.outputs()
            played.launch(out)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            played.launch(out)
        bad = torch.zeros((), dtype=torch.int64, device=out[0].device)
        allocated, places = torch.cuda.memory_allocated(), _places(workload, out)
        with torch.cuda.stream(stream):
            for number in range(count):
                played.take(variations[number % len(variations)])
                for each in out:
                    each.fill_(torch.nan)
                workload.poison_scratch()
                graph.replay()
                for each, true in zip(out, direct[number % len(direct)], strict=True):
                    bad += (each.view(torch.int32) != true.view(torch.int32)).any()
            moved = _places(workload, out) != places
        stream.synchronize()
        wrong, done = wrong + int(bad), done + count
        wrong += int(moved) + int(torch.cuda.memory_allocated() > allocated)
    return _answer(f"graph-replays-{done}", wrong == 0, f"{wrong} differ")


def _places(workload: Workload, outputs: list[torch.Tensor]) -> tuple[int, ...]:
    return (*workload.addresses(), *(out.data_ptr() for out in outputs))


def _launched(problem: Problem) -> list[torch.Tensor]:
    out = problem.outputs()
    problem.launch(out)
    return out


def _streams(problems: list[Problem]) -> Fact:
    """Two streams at once give what each gives alone."""
    pair, streams = (problems[0], problems[-1]), (torch.cuda.Stream(), torch.cuda.Stream())
    alone, wrong = [_launched(problem) for problem in pair], 0
    torch.cuda.synchronize()
    for _ in range(STREAM_ROUNDS):
        outs = [problem.outputs() for problem in pair]
        torch.cuda.synchronize()
        for problem, stream, out in zip(pair, streams, outs, strict=True):
            with torch.cuda.stream(stream):
                problem.launch(out)
        torch.cuda.synchronize()
        wrong += sum(not compare.equal(out, true) for out, true in zip(outs, alone, strict=True))
    return _answer("two-streams", wrong == 0, f"{wrong} differ")


def _kernels(workload: Workload, problems: list[Problem]) -> Fact:
    """One launch a call by the profiler's own names: nothing else ran on the device."""
    for problem in problems:
        _launched(problem)
    outs = [problem.outputs() for problem in problems]
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for problem, out in zip(problems, outs, strict=True):
            problem.launch(out)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type.name == "CUDA"]
    ours = [name for name in names if workload.kernel in name]
    return _answer("kernel-names", len(ours) == len(names) == len(problems), sorted({name[:60] for name in names}))


def _watermark(watermark: Workload, seed: int) -> Fact:
    """The build that is 1 % too large is read as 1 % too large: the reading can see an error."""
    readings = [compare.reading(_launched(problem), problem.expected()) for problem in watermark.small(seed)]
    seen = all(WATERMARK[0] < reading.relative_error < WATERMARK[1] for reading in readings)
    return _answer("watermark-seen", seen, [compare.decimal(reading.relative_error) for reading in readings])
