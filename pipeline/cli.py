"""The command line ``soc-pipeline``."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from pipeline.errors import PipelineError

COMMANDS = (
    "demo",
    "inspect",
    "convert",
    "boards",
    "devices",
    "profile",
    "plan",
    "simulate",
    "quantize",
    "tune",
    "build",
    "run",
    "node",
    "bench",
    "serve",
    "vta",
)
"""Each is a module of `pipeline.commands` with `HELP`, `EXAMPLE`, `arguments(parser)` and `run(options)`."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 (it failed), 2 (wrong use), 130 (interrupted)."""
    try:
        options = parser().parse_args(argv)
        with _termination_interrupts():
            status: int = options.run(options)
        _flush()
    except PipelineError as error:
        print(f"soc-pipeline: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("soc-pipeline: interrupted", file=sys.stderr)
        return _leave(INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone, as in "soc-pipeline inspect model.onnx | head".
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"soc-pipeline: {error.filename or 'input or output'}: {error.strerror or error}", file=sys.stderr)
        return 1
    return status


@contextlib.contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Let SIGTERM, by which services are stopped, find the same clean end as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="soc-pipeline",
        description="Cut a neural network into stages, build each for its own device, and stream frames through them.",
    )
    top.add_argument("--version", action="version", version=f"soc-pipeline {_version()}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"pipeline.commands.{name}")
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.arguments(command)
        command.set_defaults(run=module.run)
    return top


def _version() -> str:
    try:
        return version("soc-pipeline")
    except PackageNotFoundError:
        return "(not installed)"


def _leave(status: int) -> int:
    """Return `status`, or leave at once if a device is still in the middle of a frame.

    A kernel cannot be interrupted, and the interpreter must not take its memory away while it runs.
    """
    others = [thread for thread in threading.enumerate() if thread.daemon and thread is not threading.current_thread()]
    if any(thread.is_alive() for thread in others):
        _exit_now(status)
    return status


def _exit_now(status: int) -> NoReturn:
    _flush()
    os._exit(status)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is when the caller has closed it
            stream.flush()


if __name__ == "__main__":
    sys.exit(main())
