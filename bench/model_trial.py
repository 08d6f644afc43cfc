"""One model file tried, in a process of its own: by its own runtime, and by us in one stage and in three.

It says what each step has brought as that ends, so that whoever started it knows how far it came.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from model_runtimes import (
    RUNTIMES,
    Frame,
    Runtime,
    as_arrays,
    candidate_frames,
    candidate_inputs,
    count_operators,
    is_open,
)  # fmt: skip

from pipeline.comparison.random_frame import perturb

SEEDS = (0, 1)
"""Of the frames; the second one shows whether a model keeps state."""

STAGES = {"one_stage": 1, "three_stages": 3}

TOLERANCE = 1e-4
"""Of floats, as a share of an output's largest value."""

HALF_TOLERANCE = 2e-3
STEPS = (0.999, 2)
"""Of quantised integers: the share that may be off by one step at most, and the most that any may be."""

SPREADS = 2
"""By how many times as much as the runtime's ways do from each other an answer may differ from the nearest one."""

SPREAD = "the spread of its ways"
"""What an answer is like that differs little more from one of the runtime's than these do from each other."""

PERTURBED = "of inputs that are rounded differently"
"""A way of a runtime that shows how much rounding matters to a model: those that quantise as they run may jump."""

Tensors = Sequence[np.ndarray]


class Difference(AssertionError):
    """Raised when outputs differ from those of the runtime."""


def serve(connection: Connection, path: Path, options: argparse.Namespace) -> None:
    """Send the columns of each step as it ends, as a process of its own."""
    # A group of its own: what it starts, such as a linker, ends with it.
    os.setsid()
    limit = int(options.memory_gb * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # Compilers and runtimes print from C++ as well.
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    warnings.simplefilter("ignore")
    trial = Trial(path, options)
    try:
        for columns in trial.steps():
            connection.send(columns)
    except Exception as error:  # noqa: BLE001 - whatever it is, this step has failed
        lines = (str(error).strip() or "?").replace(f"{path.parent}/", "").splitlines()
        connection.send({"reason": f"{type(error).__name__}: {lines[0]}", "outcome": trial.step})
    connection.close()
    # Threads of three libraries may not end when asked to.
    os._exit(0)


class Trial:
    """The steps of a trial.

    Parameters
    ----------
    path : Path
    options : argparse.Namespace
        Of the command line: `stages`, `no_check`, `no_fallback`.

    Attributes
    ----------
    step : str
        What is being tried, as it is called if it fails.
    """

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self.path = path
        self.options = options
        self.step = "its runtime does not load it"
        self.frames: list[Frame] = []
        self.expected: dict[str, list[Tensors]] = {}

    def steps(self) -> Iterator[dict[str, Any]]:
        """Yield what each step adds to the row."""
        import pipeline

        yield {"outcome": self.step}
        shapes, columns = self._run_runtime()
        yield columns
        self.step = "not read"
        yield {"outcome": self.step}
        begin_s = perf_counter()
        graph = pipeline.read(self.path, shapes=shapes, fallback=not self.options.no_fallback)
        yield {"read_s": perf_counter() - begin_s, **describe(graph, columns["operators"])}
        for label in [label for label in STAGES if STAGES[label] <= self.options.stages]:
            yield from self._build_and_compare(label, graph)
        yield {"outcome": "agrees" if self.options.stages else "read"}

    def _run_runtime(self) -> tuple[dict[str, list[int]], dict[str, Any]]:
        """Run the frames by the model's runtime; return shapes for open extents, and columns of the row."""
        operators = count_operators(self.path)
        begin_s = perf_counter()
        runtime = self._load_runtime()
        load_s = perf_counter() - begin_s
        self.step = "its runtime does not run it"
        self.frames = choose_frames(runtime)
        begin_s = perf_counter()
        runtime.run(self.frames[0])
        run_s = perf_counter() - begin_s
        open_inputs = [each.name for each in runtime.inputs if is_open(each)]
        shapes = {name: list(self.frames[0][name].shape) for name in open_inputs}
        columns = {"operators": operators, "runtime_load_s": load_s, "runtime_ms": run_s * 1e3, "shapes": shapes}
        return shapes, columns

    def _load_runtime(self) -> Runtime:
        """Return the model in the first way that loads it: optimisers fail with what they do not expect."""
        first: Exception | None = None
        for way in (kind := RUNTIMES[self.path.suffix]).ways:
            try:
                return kind(self.path, way)
            except Exception as error:  # noqa: BLE001, PERF203 - each runtime raises types of its own
                first = first or error
        raise first or ValueError(f"no way to load {self.path.name!r}")

    def _run_way(self, way: str) -> list[Tensors]:
        """Return the frames' outputs, of a model loaded anew: one that keeps state begins afresh."""
        if way not in self.expected:
            runtime = RUNTIMES[self.path.suffix](self.path, way)
            self.expected[way] = [runtime.run(frame) for frame in self.frames]
        return self.expected[way]

    def _build_and_compare(self, label: str, graph: Any) -> Iterator[dict[str, Any]]:
        import pipeline
        from pipeline.split.cuts import legal_cuts

        stages = min(STAGES[label], 1 + len(legal_cuts(graph)))
        if stages == 1 < STAGES[label]:
            yield {f"{label}_cuts": 0}
            return
        in_words = label.replace("_", " ")
        self.step = f"not built in {in_words}"
        yield {"outcome": self.step}
        begin_s = perf_counter()
        bundle = pipeline.build(graph, pipeline.plan(graph, stages=stages), check=not self.options.no_check)
        parity = bundle.parity.frame or "normal" if bundle.parity else "nothing"
        yield {f"{label}_build_s": perf_counter() - begin_s, f"{label}_cuts": stages - 1, f"{label}_parity": parity}
        yield {f"{label}_unverified": bundle.unverified}
        self.step = f"not run in {in_words}"
        yield {"outcome": self.step}
        with pipeline.load(bundle) as running:
            names = [spec.name for spec in graph.outputs]
            frames = [rename(frame, [spec.name for spec in graph.inputs]) for frame in self.frames]
            results = [running.submit(frame).outputs() for frame in frames]
            begin_s = perf_counter()
            running.submit(frames[0]).outputs()
            yield {f"{label}_ms": (perf_counter() - begin_s) * 1e3}
        self.step = f"differs in {in_words}"
        yield {"outcome": self.step}
        yield from self._compare(label, [as_arrays(result[name] for name in names) for result in results])

    def _compare(self, label: str, results: Sequence[Tensors]) -> Iterator[dict[str, Any]]:
        """Compare with each way of the runtime until one agrees."""
        complaints: list[str] = []
        for way in RUNTIMES[self.path.suffix].ways:
            try:
                expected = self._run_way(way)
            except Exception:  # noqa: BLE001 - the runtime has not every way for each model
                continue
            pairs = list(zip(results, expected, strict=True))
            complaint = next((text for pair in pairs if (text := describe_difference(*pair))), "")
            yield {f"{label}_error": max(relative_error(*pair) for pair in pairs)} if not complaints else {}
            if not complaint:
                yield {f"{label}_error": max(relative_error(*pair) for pair in pairs), f"{label}_like": way}
                return
            complaints.append(complaint)
        self._run_perturbed()
        yield {"runtime_spread": self._spread()}
        if all(map(self._within_spread, results, range(len(self.frames)))):
            yield {f"{label}_like": SPREAD}
            return
        raise Difference(complaints[0])

    def _run_perturbed(self) -> None:
        """Run inputs that are rounded differently, whose answers scatter as much as all others may."""
        if PERTURBED not in self.expected:
            runtime = self._load_runtime()
            self.expected[PERTURBED] = [runtime.run(perturb(frame)) for frame in self.frames]

    def _spread(self) -> float:
        """Return by how much the runtime's ways differ, as a share of the largest value."""
        usual, *others = self.expected.values()
        return max((relative_error(*pair) for way in others for pair in zip(way, usual, strict=True)), default=0.0)

    def _within_spread(self, result: Tensors, number: int) -> bool:
        """Check that outputs of a frame agree, or are about as near to one of the ways as these are to each other."""
        ways = [frames[number] for frames in self.expected.values()]
        return all(
            any(not describe_difference([output], [way[position]]) for way in ways)
            or min(largest_error(output, way[position]) for way in ways)
            <= SPREADS * max((largest_error(*pair) for pair in pairs_at(ways, position)), default=0.0)
            for position, output in enumerate(result)
        )


def pairs_at(ways: Sequence[Tensors], position: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each two of the answers at one position."""
    return itertools.combinations([way[position] for way in ways], 2)


def choose_frames(runtime: Runtime) -> list[Frame]:
    """Return frames that the runtime runs; raise its first complaint if there are none."""
    first: Exception | None = None
    for inputs in candidate_inputs(runtime.inputs):
        for frames in zip(*(candidate_frames(inputs, seed) for seed in SEEDS), strict=True):
            try:
                for frame in frames:
                    runtime.run(frame)
            except Exception as error:  # noqa: BLE001, PERF203 - each runtime raises types of its own
                first = first or error
            else:
                return list(frames)
    raise first or ValueError("the model has no inputs")


def rename(frame: Frame, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return a frame by the names of our graph, which has some for tensors that the file leaves without."""
    if set(names) == frame.keys() or len(names) != len(frame):
        return {name: array for name, array in frame.items() if name in names}
    return dict(zip(names, frame.values(), strict=True))


def describe(graph: Any, operators: int) -> dict[str, Any]:
    """Return what is said of a graph: its islands, with the share of the file's operators in them."""
    inside = sum(len(island.operators) for island in graph.islands)
    return {
        "islands": len(graph.islands),
        "island_operators": inside,
        "island_share": inside / max(operators, inside, 1),
        "island_kinds": sorted({name.split(" ")[0] for island in graph.islands for name in island.operators}),
        "island_reasons": sorted({island.reason for island in graph.islands}),
    }


def describe_difference(results: Tensors, expected: Tensors) -> str:
    """Describe the first output that does not agree, or decides otherwise; empty if all do."""
    if len(results) != len(expected):
        return f"{len(results)} outputs instead of {len(expected)}"
    for number, (result, reference) in enumerate(zip(results, expected, strict=True)):
        same_dtype = result.dtype == reference.dtype or (is_text(result) and is_text(reference))
        if result.shape != reference.shape or not same_dtype:
            types = [f"{each.dtype}{list(each.shape)}" for each in (result, reference)]
            return f"output {number} is {types[0]} instead of {types[1]}"
        if complaint := describe_error(result, reference):
            return f"output {number} {complaint}"
    return ""


def describe_error(result: np.ndarray, reference: np.ndarray) -> str:
    """Describe by what an output differs too much; empty if it does not."""
    if not reference.size:
        return ""
    if reference.dtype.kind == "f":
        tolerance = HALF_TOLERANCE if reference.dtype.itemsize == 2 else TOLERANCE
        error = relative_error([result], [reference])
        allowed = tolerance * float(np.nanmax(np.abs(reference))) if error <= tolerance else 0.0
        return "" if error <= tolerance and decides_alike(result, reference, allowed) else f"is off by {error:.2g}"
    if reference.dtype.kind in "iu" and reference.dtype.itemsize <= 2:
        steps = np.abs(result.astype(np.int64) - reference.astype(np.int64))
        share = float(np.mean(steps <= 1))
        if share < STEPS[0] or steps.max() > STEPS[1] or not decides_alike(result, reference, 1):
            return f"is off by up to {steps.max()} steps, by more than one at {1 - share:.2%}"
        return ""
    # Indices, counts, flags and text.
    wrong = float(np.mean(result != reference))
    return f"has {wrong:.2%} other values" if wrong else ""


def decides_alike(result: np.ndarray, reference: np.ndarray, allowed: float) -> bool:
    """Check that the largest element of each row is one of the reference's largest as well."""
    if reference.ndim not in (1, 2) or not np.isfinite(reference.astype(np.float64)).all():
        return True
    rows, expected = np.atleast_2d(result), np.atleast_2d(reference).astype(np.float64)
    chosen = np.take_along_axis(expected, rows.argmax(-1)[:, None], -1)[:, 0]
    return bool((expected.max(-1) - chosen <= 2 * allowed).all())


def largest_error(result: np.ndarray, reference: np.ndarray) -> float:
    """Return the largest difference of two outputs; infinite if they are of other types."""
    if (result.shape, result.dtype) != (reference.shape, reference.dtype):
        return float("inf")
    if is_text(result):
        return 0.0 if (result == reference).all() else float("inf")
    return float(np.abs(result.astype(np.float64) - reference.astype(np.float64)).max(initial=0.0))


def is_text(array: np.ndarray) -> bool:
    """Check whether an array holds strings, whose dtype has the length of the longest."""
    return array.dtype.kind == "U"


def relative_error(results: Tensors, expected: Tensors) -> float:
    """Return the largest error of any output, as a share of its largest value."""
    from pipeline.comparison.compare import compare_output

    errors = [
        compare_output(result.astype(np.float64), reference.astype(np.float64)).relative
        for result, reference in zip(results, expected, strict=False)
        if reference.size and not is_text(reference)
    ]
    return float(max(errors, default=0.0))
