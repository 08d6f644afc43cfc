"""Share of what a format's own runtime runs that we run, with the same answers.

Takes the cases that the onnx package ships for backends (node, simple, operators and models converted from PyTorch).
Each is read, cut in two where it has a legal cut, built and run, and compared with the case's own expected outputs,
with the case's own tolerances.  What counts is the share of those that ONNX Runtime's CPU provider passes.

Cases run in processes of their own, so that a crash or a hang costs one case.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import functools
import multiprocessing
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import report

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
LIMIT_S = 120.0
"""For one case, build included; the longest takes ten seconds."""

# Of the cases, in their order: every so many with --quick.
QUICK_STRIDE = 40


def main() -> None:
    """Try all cases and report the shares that pass."""
    parser = report.parser(__doc__)
    parser.add_argument(
        "--cases", metavar="PATTERN", default="*", help="only cases whose names match, such as test_lstm*"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth of them")
    parser.add_argument("--failures", action="store_true", help="print the reason of each failure")
    parser.add_argument("--no-fallback", action="store_true", help="leave no operator to ONNX Runtime")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    options = parser.parse_args()
    names = [name for name in case_names() if fnmatch.fnmatch(name[1], options.cases)]
    names = names[:: QUICK_STRIDE if options.quick else options.every]
    results = sorted(run_all(names, options))
    if options.failures:
        print_failures(results)
    caption = "passed: of the cases that ONNX Runtime's CPU provider passes, those that we pass as well"
    report.report("ONNX backend tests", list(summaries(results)), caption, options.json)


def case_names() -> list[tuple[str, str]]:
    """Return kind and name of each case."""
    return [(kind, case.name) for kind in KINDS for case in load_cases(kind)]


def load_cases(kind: str) -> list[Any]:
    """Return the onnx package's cases of one kind."""
    from onnx.backend.test import loader

    with warnings.catch_warnings():  # some cases divide by zero on purpose while they are made
        warnings.simplefilter("ignore")
        return list(loader.load_model_tests(kind=kind))


Data = Sequence[tuple[dict[str, Any], list[Any]]]
"""Inputs by name and expected outputs, of each frame of a case."""

Result = tuple[str, str, bool, str]
"""Kind, name, whether ONNX Runtime passes, and why we do not; empty if we do."""


def run_all(names: Sequence[tuple[str, str]], options: argparse.Namespace) -> Iterator[Result]:
    """Share the cases out to processes, and start a process again after a crash or a hang."""
    import concurrent.futures

    shares = [names[start :: options.jobs] for start in range(options.jobs)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        run = functools.partial(run_share, fallback=not options.no_fallback)
        for results in pool.map(run, shares):
            yield from results


def run_share(names: Sequence[tuple[str, str]], *, fallback: bool) -> list[Result]:
    """Run cases one after the other in a process that is replaced when it dies."""
    context = multiprocessing.get_context("spawn")
    results: list[Result] = []
    while len(results) < len(names):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, names[len(results) :], fallback), daemon=True)
        process.start()
        theirs.close()
        try:
            while len(results) < len(names):
                if not ours.poll(LIMIT_S):
                    results.append((*names[len(results)], True, "hangs"))
                    break
                results.append(ours.recv())
        except EOFError:
            results.append((*names[len(results)], True, "the process dies"))
        finally:
            process.kill()
            process.join()
    return results


def serve(connection: Connection, names: Sequence[tuple[str, str]], fallback: bool) -> None:
    """Run cases and send their results, as a process of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    cases = {(kind, case.name): case for kind in {kind for kind, _ in names} for case in load_cases(kind)}
    for key in names:
        connection.send((*key, *judge(cases[key], fallback=fallback)))


def judge(case: Any, *, fallback: bool) -> tuple[bool, str]:
    """Return whether ONNX Runtime passes, and why we do not."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        model = load_model(case)
        path.write_bytes(model.SerializeToString())
        data = list(data_sets(case, model))
        try:
            by_onnxruntime(path, case, data)
        except Exception:  # noqa: BLE001 - a case that ONNX Runtime has no kernel for, or another opinion of
            return False, reason_of(attempt(path, case, data, fallback=fallback))
        return True, reason_of(attempt(path, case, data, fallback=fallback))


def attempt(path: Path, case: Any, data: Data, *, fallback: bool) -> Exception | None:
    """Return why we do not pass a case."""
    try:
        by_pipeline(path, case, data, fallback=fallback)
    except Exception as error:  # noqa: BLE001 - whatever it is, the case has failed
        return error
    return None


def reason_of(error: Exception | None) -> str:
    """Return a line for the table of reasons."""
    if error is None:
        return ""
    first_line = (str(error).strip() or "?").splitlines()[0]
    return f"{type(error).__name__}: {re.sub(r'/tmp/[^ :]*/', '', first_line)}"


def load_model(case: Any) -> Any:
    """Return a case's model, from memory or from its folder."""
    import onnx

    return case.model if case.model is not None else onnx.load(Path(case.model_dir) / "model.onnx")


def data_sets(case: Any, model: Any) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield inputs by name and expected outputs."""
    initial = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in initial]
    if case.data_sets is not None:
        for inputs, outputs in case.data_sets:
            yield dict(zip((value.name for value in values), inputs, strict=False)), list(outputs)
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):
        inputs = [load_value(folder / f"input_{number}.pb", value) for number, value in enumerate(values)]
        outputs = [load_value(folder / f"output_{n}.pb", value) for n, value in enumerate(model.graph.output)]
        yield dict(zip((value.name for value in values), inputs, strict=True)), outputs


def load_value(path: Path, value: Any) -> Any:
    """Return a tensor or a sequence of tensors that a file holds."""
    import onnx
    from onnx import numpy_helper

    content = path.read_bytes()
    if value.type.WhichOneof("value") == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))


def by_onnxruntime(path: Path, case: Any, data: Data) -> None:
    """Raise unless ONNX Runtime's CPU provider passes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    for inputs, expected in data:
        compare(session.run(None, inputs), expected, case)


def by_pipeline(path: Path, case: Any, data: Data, *, fallback: bool) -> None:
    """Raise unless we read, cut, build and run it with the expected outputs."""
    import pipeline
    from pipeline.split.cuts import legal_cuts

    graph = pipeline.read(path, fallback=fallback)
    plan = pipeline.plan(graph, stages=min(2, 1 + len(legal_cuts(graph))))
    # Its check would take random values, also for inputs that are axes or sizes.
    with pipeline.load(pipeline.build(graph, plan, check=False)) as running:
        names = [spec.name for spec in plan.outputs]
        for inputs, expected in data:
            outputs = running.submit(inputs).outputs(60)
            compare([outputs[name] for name in names], expected, case)


def compare(results: Sequence[Any], expected: Sequence[Any], case: Any) -> None:
    """Raise unless all outputs have the expected type, shape and values."""
    if len(results) < len(expected):
        raise AssertionError(f"{len(results)} outputs instead of {len(expected)}")
    for result, reference in zip(results, expected, strict=False):
        if isinstance(reference, list):
            compare(result, reference, case)
        elif reference is not None:
            compare_arrays(np.asarray(result), np.asarray(reference), case)


def compare_arrays(result: np.ndarray, reference: np.ndarray, case: Any) -> None:
    """Raise unless two arrays agree as the onnx package's own runner wants it."""
    if result.dtype != reference.dtype:
        raise AssertionError(f"dtype {result.dtype} instead of {reference.dtype}")
    if result.shape != reference.shape:
        raise AssertionError(f"shape {result.shape} instead of {reference.shape}")
    if reference.dtype.kind in "OUS":
        np.testing.assert_array_equal(result, reference)
    else:
        if reference.dtype.kind not in "fcbiu":  # bfloat16 and its kin, which NumPy compares only as something else
            result, reference = result.astype(np.float32), reference.astype(np.float32)
        if not np.allclose(result, reference, rtol=case.rtol, atol=case.atol, equal_nan=True):
            raise AssertionError("other values")


def summaries(results: Sequence[Result]) -> Iterator[report.Row]:
    """Yield a row for each kind of case, and one for all."""
    for kind in (*KINDS, "all"):
        rows = [row for row in results if kind in (row[0], "all")]
        due_rows = [row for row in rows if row[2]]
        ours = sum(not row[3] for row in due_rows)
        if rows:
            yield {
                "suite": kind,
                "cases": len(rows),
                "onnxruntime_passes": len(due_rows),
                "ours_of_those": ours,
                "passed_share": ours / len(due_rows) if due_rows else None,
                "ours_beside": sum(not row[3] for row in rows if not row[2]),
            }


def print_failures(results: Sequence[Result]) -> None:
    """Print reasons with the cases that have them, the most frequent first."""
    reasons = collections.defaultdict(list)
    for _, name, is_due, reason in results:
        if is_due and reason:
            reasons[re.sub(r"'[^']*'", "'...'", reason)].append((name, reason))
    for cases in sorted(reasons.values(), key=len, reverse=True):
        print(f"{len(cases)}x {cases[0][1][:300]}\n   {' '.join(name for name, _ in cases[:40])}", file=sys.stdout)


if __name__ == "__main__":
    main()
