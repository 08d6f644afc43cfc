"""Share of model files, of whoever, that we run as their own runtimes do.

Takes files, or folders with files, of ONNX, TFLite and PyTorch (.pt2).  Each is tried in a process of its own: its
own runtime (ONNX Runtime, LiteRT, PyTorch) runs two random frames; we read it, plan and build it in one stage and,
where it has cuts, in three, run the same frames, and compare: floats within 1e-4 of an output's largest value,
quantised integers within one step at 99.9 % of the elements and never more than two, other integers equal, and the
largest of each row the same.  A runtime computes a model in more ways than one (with and without its optimiser, ...);
we agree if we agree with one of them, and *_like says with which; or, counted as by_spread, if we differ from one
by no more than twice what they do from each other.

Rows of single files are in the JSON file only.

islands        parts that the model's own runtime computes for us; island_share is of the file's operators
runtime_*      its own runtime: to load, per frame, and by how much its ways, and those of inputs that are rounded
               differently, differ where we agree with none
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import report
from model_runtimes import RUNTIMES
from model_trial import SPREAD, serve

AGREES = "agrees"
READ = "read"
PRELOAD = ["model_trial", "onnxruntime", "onnx", "tflite", "ai_edge_litert.interpreter", "pipeline.workflow.read"]
PRELOAD += ["pipeline.workflow.plan", "pipeline.workflow.build", "pipeline.workflow.load", "tvm.relax.frontend.onnx"]
UNSUITABLE = "its runtime does not"
"""How outcomes begin that say nothing of us."""

# With --quick: of the files, in the order of their sizes, the smaller half of which takes a few seconds each.
QUICK_FILES = 8


def main() -> None:
    """Try all files and report the shares."""
    options = parse()
    files = distinct_files(options.paths)
    if options.quick:
        files = sorted(files, key=lambda file: file.stat().st_size)[: max(1, len(files) // 2)]
        files = files[:: max(1, len(files) // QUICK_FILES)]
    # Imported once, in a process that has no threads yet, instead of for three seconds by each.
    multiprocessing.set_forkserver_preload(PRELOAD)
    rows = {row["file"]: row for row in load_rows(options)}
    tasks = [file for file in files if str(file) not in rows]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda file: run_trial(file, options), tasks):
            rows[row["file"]] = row
            save_rows(rows, options)
            print(f"{row['outcome']:32} {row['file']}  {row.get('reason', '')[:200]}", flush=True)
    chosen = [rows[str(file)] for file in files]
    if options.failures:
        print_reasons(chosen)
    report.report("Model files", list(summarise(chosen)), (__doc__ or "").partition("\n\n")[2])


def parse() -> argparse.Namespace:
    parser = report.parser(__doc__)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a model file, or a folder with some")
    parser.add_argument("--jobs", type=int, default=1, help="files at once")
    parser.add_argument("--limit-s", type=float, default=600, help="for one file")
    parser.add_argument("--memory-gb", type=float, default=12, help="address space for one file")
    parser.add_argument("--stages", type=int, choices=(0, 1, 3), default=3, help="at most; 0 only reads")
    parser.add_argument("--no-check", action="store_true", help="let build compare nothing, unlike by default")
    parser.add_argument("--no-fallback", action="store_true", help="leave no operator to the model's own runtime")
    parser.add_argument("--resume", action="store_true", help="keep the rows that the file of --json has")
    parser.add_argument("--retry", action="store_true", help="with --resume: only of those that agree")
    parser.add_argument("--failures", action="store_true", help="print the reasons, with the files that have them")
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--resume needs --json FILE")
    return options


def distinct_files(paths: Sequence[Path]) -> list[Path]:
    """Return the model files below `paths`, one of each content, the smallest first."""
    candidates = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    contents: dict[str, Path] = {}
    for file in candidates:
        if file.suffix in RUNTIMES and file.is_file():
            contents.setdefault(hashlib.sha256(file.read_bytes()).hexdigest(), file)
    if not contents:
        raise SystemExit(f"no model files ({', '.join(RUNTIMES)}) in {', '.join(map(str, paths))}")
    return sorted(contents.values(), key=lambda file: (file.stat().st_size, str(file)))


def load_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of an earlier run that count."""
    if not options.resume or not options.json.exists():
        return []
    rows = json.loads(options.json.read_text())["rows"]
    settled = (AGREES, READ, "its runtime does not load it", "its runtime does not run it")
    return [row for row in rows if not options.retry or row["outcome"] in settled]


def save_rows(rows: dict[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """Write all rows after each file, so that an interrupted run can be resumed."""
    from pipeline.system.files import write_atomically

    if options.json:
        content = {"environment": report.environment(), "rows": list(rows.values())}
        write_atomically(options.json, (json.dumps(content, indent=1) + "\n").encode())


def run_trial(file: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the row of a file."""
    row: dict[str, Any] = {"file": str(file), "bytes": file.stat().st_size, "outcome": "not started"}
    begin_s = time.perf_counter()
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, file, options), daemon=True)
    process.start()
    theirs.close()
    try:
        while ours.poll(begin_s + options.limit_s - time.perf_counter()):
            row |= ours.recv()
        row["reason"] = f"takes more than {options.limit_s:g} s"
    except EOFError:
        process.join()
        if "reason" not in row and row["outcome"] not in (AGREES, READ):
            row["reason"] = f"the process ends with {process.exitcode}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
    return row | {"total_s": time.perf_counter() - begin_s}


def summarise(rows: Sequence[dict[str, Any]]) -> Iterator[report.Row]:
    """Yield how many files have each outcome, for each format and for all."""
    formats = collections.Counter(Path(row["file"]).suffix for row in rows)
    for suffix in [*formats, "all"]:
        selected = [row for row in rows if suffix in (Path(row["file"]).suffix, "all")]
        runnable = [row for row in selected if not row["outcome"].startswith(UNSUITABLE)]
        agreeing = [row for row in runnable if row["outcome"] == AGREES]
        yield {
            "format": suffix,
            "files": len(selected),
            "runtime_runs": len(runnable),
            "read": sum("read_s" in row for row in runnable),
            "one_stage_built": sum("one_stage_build_s" in row for row in runnable),
            "with_cuts": sum(row.get("three_stages_cuts", 0) > 0 for row in runnable),
            "three_stages_built": sum("three_stages_build_s" in row for row in runnable),
            "agree": len(agreeing),
            "by_spread": sum(SPREAD in (row.get("one_stage_like"), row.get("three_stages_like")) for row in agreeing),
            "agree_share": len(agreeing) / len(runnable) if runnable else None,
            "with_islands": sum(row.get("islands", 0) > 0 for row in runnable),
        }


def print_reasons(rows: Sequence[dict[str, Any]]) -> None:
    """Print what failed and why, with the files, the most frequent first."""
    groups = collections.defaultdict(list)
    for row in rows:
        if "reason" in row:
            # Names and numbers differ from file to file where the cause is the same.
            cause = re.sub(r"'[^']*'", "'...'", row.get("reason", ""))
            groups[row["outcome"], re.sub(r"\d+", "N", cause)].append(row)
    for (outcome, _), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        print(f"{len(members)}x {outcome}: {members[0].get('reason', '')[:400]}")
        print("".join(f"     {row['file']}\n" for row in members[:40]), end="")


if __name__ == "__main__":
    main()
