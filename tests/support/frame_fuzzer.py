"""Fuzzer of frames: each case is built once and takes many hostile frames, in a process that may die of it.

``python -m tests.support.frame_fuzzer SUITE FIRST STEP FRAMES ROUTE [ADDRESS or LIBRARY]`` prints a line of JSON before
each case, and one behind it; the number of the frame that it is at is in the file ``frame`` of its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pipeline
from pipeline.core.packed_value import is_packed
from pipeline.errors import PipelineError
from tests.support.fenced_arrays import FencedArray
from tests.support.frame_cases import FrameCase, suite
from tests.support.hostile_frames import make_frame

LIMIT_S = 15.0
"""Seconds for a frame: with some values, operators compute for ever."""

LIMIT_BYTES = 12 << 30
"""Address space of the process, above all for loops that keep what all their steps make."""

CASES = 60
"""Cases for a process: each leaves code and threads behind."""

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[[dict[str, np.ndarray]], None]
"""Runs a frame; an error of the frame is raised."""

Report = Callable[[dict[str, Any]], None]
"""Prints a case's row."""


class Outcome(NamedTuple):
    """What became of a suite's cases."""

    frames: int
    errors: int
    cases: list[str]
    refused: dict[str, str]
    faults: dict[str, str]


def fuzz(name: str, first: int, step: int, frames: int, route: str = "here", *target: str) -> Outcome:
    """Run a suite's cases in processes, a new one after each death, and return what happened."""
    outcome = Outcome(0, 0, [], {}, {})
    with tempfile.TemporaryDirectory() as folder:
        modules = os.pathsep.join(map(str, (ROOT, ROOT / "bench")))
        environment = {**os.environ, "TMPDIR": folder, "PYTHONPATH": modules}
        while True:
            arguments = [name, *map(str, (first, step, frames)), route, *target]
            process = subprocess.run(
                [sys.executable, "-m", "tests.support.frame_fuzzer", *arguments],
                cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            rows = [json.loads(line) for line in process.stdout.splitlines() if line.startswith("{")]
            if not rows:
                assert process.returncode == 0, process.stderr[-3000:]
                return outcome
            for row in rows:
                outcome = _add(outcome, row)
            if process.returncode:
                path = Path(folder) / "frame"
                number = path.read_text() if path.exists() else "none"
                reason = f"ends with {process.returncode} at frame {number}: {process.stderr[-300:]}"
                outcome.faults[f"{name}: {rows[-1]['case']}"] = reason
            first = rows[-1]["place"] + step


def _add(outcome: Outcome, row: dict[str, Any]) -> Outcome:
    if "refused" in row:
        outcome.refused[row["case"]] = row["refused"]
    elif "frames" in row:
        outcome.cases.append(row["case"])
        if row["fault"]:
            outcome.faults[row["case"]] = row["fault"]
        return outcome._replace(frames=outcome.frames + row["frames"], errors=outcome.errors + row["errors"])
    return outcome


def _try_case(case: FrameCase, frames: int, route: str, target: list[str], report: Report) -> None:
    try:
        graph, sample = case.read()
        if any(map(is_packed, graph.inputs)) or not graph.inputs:
            report({"refused": "no tensors"})
            return
        sample = {spec.name: np.asarray(sample[spec.name]) for spec in graph.inputs}
        if any(array.dtype.kind not in "biuf" for array in sample.values()):
            report({"refused": "text, or numbers that NumPy does not have"})
            return
        bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    except Exception as error:  # noqa: BLE001 - that nothing else is raised here is another test's
        report({"refused": f"{type(error).__name__}: {str(error)[:200]}"})
        return
    with ROUTES[route](bundle, *target) as run:
        result = _run_frames(case.name, run, sample, frames, report)
    report({**result, "islands": len(graph.islands)})


def _run_frames(name: str, run: Run, sample: dict[str, np.ndarray], frames: int, report: Report) -> dict[str, Any]:
    memory = [
        {key: FencedArray(array.shape, array.dtype, behind=behind) for key, array in sample.items()}
        for behind in (True, False)
    ]
    errors = 0
    progress = os.open(Path(os.environ["TMPDIR"]) / "frame", os.O_WRONLY | os.O_CREAT)
    for number in range(frames):
        os.pwrite(progress, b"%d " % number, 0)
        arrays = memory[number % 2]
        for key, values in make_frame(name, number // 2, sample).items():
            arrays[key].fill(values)
        try:
            run({key: fenced.array for key, fenced in arrays.items()})
        except PipelineError:
            errors += 1
        except TimeoutError:
            # A loop of so many steps: its thread does not end, and who closes the pipeline would wait for it.
            report({"frames": number, "errors": errors, "fault": "", "endless": True})
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - which is what is looked for
            return {"frames": number, "errors": errors, "fault": f"frame {number}: {type(error).__name__}: {error}"}
        if not all(fenced.is_unchanged for fenced in arrays.values()):
            return {"frames": number, "errors": errors, "fault": f"frame {number} was written to, or beside"}
    return {"frames": frames, "errors": errors, "fault": ""}


@contextlib.contextmanager
def _here(bundle: Any) -> Iterator[Run]:
    with pipeline.load(bundle) as running:
        yield lambda frame: running.submit(frame, copy=False).result(LIMIT_S)


@contextlib.contextmanager
def _on_server(bundle: Any, address: str) -> Iterator[Run]:
    with pipeline.load(bundle, devices={"cpu": address}) as running:
        yield lambda frame: running.submit(frame, copy=False).result(LIMIT_S)


@contextlib.contextmanager
def _by_runner(bundle: Any, library: str) -> Iterator[Run]:
    from tests.support.runner import FAILED, Library

    with tempfile.TemporaryDirectory() as folder:
        bundle.save(Path(folder) / "m.bundle")
        with Library(Path(library)).open(Path(folder) / "m.bundle") as running:

            def run(frame: dict[str, np.ndarray]) -> None:
                running.submit({name: frame[name] for name in running.inputs})
                result = running.next(LIMIT_S)
                if result is not None and result.status == FAILED:
                    raise PipelineError(result.reason)

            yield run


ROUTES: dict[str, Callable[..., contextlib.AbstractContextManager[Run]]] = {
    "here": _here,
    "server": _on_server,
    "runner": _by_runner,
}


def _main() -> None:
    name, first, step, frames, route, *target = sys.argv[1:]
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    for place, case in list(enumerate(suite(name)))[int(first) :: int(step)][:CASES]:

        def report(row: dict[str, Any], case: FrameCase = case, place: int = place) -> None:
            print(json.dumps({"case": case.name, "place": place, **row}), flush=True)

        report({})
        _try_case(case, int(frames), route, target, report)
    sys.stdout.flush()
    # Threads in frames without end are left behind.
    os._exit(0)


if __name__ == "__main__":
    _main()
