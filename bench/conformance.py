"""Share of what a format's own runtime runs that we run, with the same answers.

Takes suites of cases, each of which is read, cut in two where it has a legal cut, built and run, and compared.  What
counts is the share of those that the format's own runtime passes.

Cases run in processes of their own, so that a crash or a hang costs one case.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import functools
import importlib
import multiprocessing
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import report

SUITES = {"onnx": "conformance_onnx", "tflite": "conformance_tflite", "torch": "conformance_torch"}
"""Modules with `RUNTIME`, `KINDS`, `QUICK_STRIDE`, `case_names` and `judge`."""

LIMIT_S = 120.0
"""For one case, build included; the longest takes ten seconds."""


def main() -> None:
    """Try all cases of a suite and report the shares that pass."""
    parser = report.parser(__doc__)
    parser.add_argument("--suite", choices=SUITES, default="onnx", help="which cases (default: onnx)")
    parser.add_argument(
        "--cases", metavar="PATTERN", default="*", help="only cases whose names match, such as test_lstm*"
    )
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth of them")
    parser.add_argument("--failures", action="store_true", help="print the reason of each failure")
    parser.add_argument("--no-fallback", action="store_true", help="leave no operator to the format's own runtime")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    options = parser.parse_args()
    suite = importlib.import_module(SUITES[options.suite])
    names = suite.case_names(suite.QUICK_STRIDE if options.quick else options.every)
    results = sorted(run_all([name for name in names if fnmatch.fnmatch(name[1], options.cases)], options))
    if options.failures:
        print_failures(results)
    caption = f"passed: of the cases that {suite.RUNTIME} passes, those that we pass as well"
    report.report(f"{options.suite} cases", list(summaries(results, suite.KINDS)), caption, options.json)


Result = tuple[str, str, bool, str]
"""Kind, name, whether the format's own runtime passes, and why we do not; empty if we do."""


def run_all(names: Sequence[tuple[str, str]], options: argparse.Namespace) -> Iterator[Result]:
    """Share the cases out to processes, and start a process again after a crash or a hang."""
    import concurrent.futures

    shares = [names[start :: options.jobs] for start in range(options.jobs)]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        run = functools.partial(run_share, suite=SUITES[options.suite], fallback=not options.no_fallback)
        for results in pool.map(run, shares):
            yield from results


def run_share(names: Sequence[tuple[str, str]], *, suite: str, fallback: bool) -> list[Result]:
    """Run cases one after the other in a process that is replaced when it dies."""
    context = multiprocessing.get_context("spawn")
    results: list[Result] = []
    while len(results) < len(names):
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, suite, names[len(results) :], fallback), daemon=True)
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


def serve(connection: Connection, suite: str, names: Sequence[tuple[str, str]], fallback: bool) -> None:
    """Run cases and send their results, as a process of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    warnings.simplefilter("ignore")
    cases: Any = importlib.import_module(suite)
    for key in names:
        connection.send((*key, *cases.judge(*key, fallback=fallback)))


def summaries(results: Sequence[Result], kinds: Sequence[str]) -> Iterator[report.Row]:
    """Yield a row for each kind of case, and one for all."""
    for kind in (*kinds, "all"):
        rows = [row for row in results if kind in (row[0], "all")]
        due_rows = [row for row in rows if row[2]]
        ours = sum(not row[3] for row in due_rows)
        if rows:
            yield {
                "suite": kind,
                "cases": len(rows),
                "runtime_passes": len(due_rows),
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
