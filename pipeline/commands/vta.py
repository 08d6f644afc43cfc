"""``soc-pipeline vta``: tools for the accelerator VTA alone."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, values
from pipeline.errors import InstructionError
from pipeline.system.files import check_regular

if TYPE_CHECKING:
    from boards.vta.driver.hardware import Hardware
    from boards.vta.driver.selftest import SelfTestOutcome
    from boards.vta.isa.config import Config
    from boards.vta.isa.instructions import Instruction, Uop

HELP = "Look at programs of the int8 accelerator VTA, and test a board that has it."
EXAMPLE = "soc-pipeline vta disassemble stream.bin --version 0.0.1"

_SELFTEST = "Run small programs on this board's VTA, or on the simulator, and compare the results bit for bit."
_DISASSEMBLE = "Print the instructions of a binary stream (16 bytes each, little-endian), one per line."


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions, and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    action = actions.add_parser(
        "disassemble",
        help=_DISASSEMBLE,
        description=_DISASSEMBLE,
        epilog=f"example:\n  {EXAMPLE}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument("files", metavar="FILE", nargs="+", help="a stream, as the accelerator fetches it")
    action.add_argument("--uops", metavar="FILE", help="micro-ops (4 bytes each) to print behind the instructions")
    action.add_argument("--config", metavar="FILE", help="a vta_config.json of VTA (default: VTA's standard sizes)")
    action.add_argument(
        "--version", metavar="ISA", help="0.0.1 or 0.0.2 (default: the configuration's HW_VER; 0.0.2 without one)"
    )
    action.add_argument("--json", action="store_true", help="print JSON, with every field, instead of text")
    action.set_defaults(action=_disassemble)
    _selftest_arguments(actions)


def _selftest_arguments(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    action = actions.add_parser(
        "selftest",
        help=_SELFTEST,
        description=_SELFTEST,
        epilog="example:\n  sudo soc-pipeline vta selftest --board ultra96 --version 0.0.1 --bitstream vta.bit",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument("--board", default="ultra96", help="pynq, ultra96 (default) or zcu104")
    action.add_argument("--version", metavar="ISA", help="0.0.1 or 0.0.2 (default: 0.0.1 for ultra96, else 0.0.2)")
    action.add_argument("--config", metavar="FILE", help="the vta_config.json that the bitstream was built with")
    action.add_argument("--bitstream", metavar="FILE", help="what to load first (default: what is loaded already)")
    action.add_argument("--simulated", action="store_true", help="drive the simulator instead of a board")
    action.add_argument(
        "--timeout", metavar="SECONDS", type=values.positive, default=10.0, help="for one program (default: 10)"
    )
    action.add_argument("--json", action="store_true", help="print JSON instead of text")
    action.set_defaults(action=_selftest)


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    # Actions that cannot fail return nothing.
    status: int | None = options.action(options)
    return status or 0


def _selftest(options: argparse.Namespace) -> int:
    from boards.vta import target
    from boards.vta.driver import selftest
    from boards.vta.driver.driver import Driver
    from pipeline.errors import DeviceLost

    # The published bitstream of the Ultra96 has the first instruction set.
    version = options.version or ("0.0.1" if options.board == "ultra96" else "0.0.2")
    settings = {"board": options.board, "version": version, "config": options.config}
    config = target.config({key: value for key, value in settings.items() if value is not None})
    name, loss = selftest.hardware_name(config, is_simulated=options.simulated), ""
    outcomes: list[SelfTestOutcome] = []
    with Driver(config, _hardware(options, config), options.timeout) as driver:
        try:
            for outcome in selftest.run_selftests(driver):
                outcomes.append(outcome)
                if not options.json:
                    # At once, since each may take until its timeout.
                    _tell(outcome)
        except DeviceLost as error:
            loss = str(error)
        watts = driver.hardware.power()
    is_passed = not loss and all(outcome.passed for outcome in outcomes)
    if options.json:
        tests = [asdict(outcome) for outcome in outcomes]
        console.print_json({"hardware": name, "passed": is_passed, "lost": loss, "watts": watts, "tests": tests})
    else:
        _conclude(name, outcomes, loss, watts)
    return 0 if is_passed else 1


def _hardware(options: argparse.Namespace, config: Config) -> Hardware:
    if options.simulated:
        from boards.vta.driver.simulated import SimulatedBoard

        return SimulatedBoard(config, strict=True)
    from boards.vta.driver.pynq import PynqBoard

    return PynqBoard(config, None if options.bitstream is None else Path(options.bitstream))


def _tell(outcome: SelfTestOutcome) -> None:
    verdict = "ok    " if outcome.passed else "FAILED"
    times = f"{outcome.seconds * 1e3:.2f} ms, estimated {outcome.estimated_s * 1e3:.2f} ms"
    print(f"{verdict}  {outcome.name}: {outcome.about} ({times})")
    if outcome.message:
        print(f"        {outcome.message}")


def _conclude(name: str, outcomes: list[SelfTestOutcome], loss: str, watts: dict[str, float]) -> None:
    for rail, value in watts.items():
        print(f"        {rail}: {value:.2f} W")
    failures = [outcome.name for outcome in outcomes if not outcome.passed]
    if loss:
        print(f"FAILED  {loss}")
    print(f"{name}: {'FAILED' if loss or failures else f'all {len(outcomes)} tests passed'}")


def _disassemble(options: argparse.Namespace) -> None:
    from boards.vta.isa.config import Config

    config = Config.load(options.config) if options.config else Config()
    config = replace(config, hw_ver=options.version) if options.version else config
    # All are read before anything is printed, so that a mistake prints nothing else.
    streams = {file: _stream(config, file) for file in options.files}
    uops = _uops(config, options.uops) if options.uops else ()
    if options.json:
        _print_facts(config, streams, uops)
    else:
        _print_text(config, streams, uops)


def _stream(config: Config, file: str) -> tuple[Instruction, ...]:
    from boards.vta.isa import encoding

    with _named_errors(file):
        return encoding.decode(config, encoding.read_stream(_read(file)))


def _uops(config: Config, file: str) -> tuple[Uop, ...]:
    from boards.vta.isa import encoding

    with _named_errors(file):
        return encoding.decode_uops(config, encoding.read_uops(_read(file)))


def _read(file: str) -> bytes:
    check_regular(Path(file))
    return Path(file).read_bytes()


@contextlib.contextmanager
def _named_errors(file: str) -> Iterator[None]:
    """Let errors name the file."""
    try:
        yield
    except InstructionError as error:
        raise InstructionError(f"{file}: {error}") from None


def _print_text(config: Config, streams: dict[str, tuple[Instruction, ...]], uops: tuple[Uop, ...]) -> None:
    from boards.vta.isa import disassembly

    for file, stream in streams.items():
        print(f"{file}: {len(stream)} instructions, {config.name}, version {config.hw_ver}")
        for index, instruction in enumerate(stream):
            print(disassembly.line(config, index, instruction))
    for index, uop in enumerate(uops):
        print(disassembly.uop_line(index, uop))


def _print_facts(config: Config, streams: dict[str, tuple[Instruction, ...]], uops: tuple[Uop, ...]) -> None:
    from boards.vta.isa import disassembly

    files = [
        {
            "file": file,
            "instructions": [disassembly.facts(config, index, item) for index, item in enumerate(stream)],
        }
        for file, stream in streams.items()
    ]
    facts = {"config": config.name, "version": config.hw_ver, "files": files}
    console.print_json({**facts, "uops": [asdict(uop) for uop in uops]} if uops else facts)
