"""Needs: facts of the files in ``boards/needs``, read and judged on a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import msgspec

import boards as boards_package
from pipeline.core.board import board_file
from pipeline.doctor.check import MISSING, OK, UNKNOWN, WRONG, Check, access_check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Where values are; the first place that has some counts.

    Several files, or numbers of devices, are separated by spaces.
    """

    file: str = ""  # Files: their names are the values, or with a `pattern` what they contain
    command: str = ""
    library: str = ""  # Shared library: its file's name with the version is the value
    package: str = ""  # Python distribution: its version
    variable: str = ""  # Environment variable
    usb: str = ""
    pci: str = ""
    attribute: str = ""  # File in a device's folder, whose text is the value
    inside: str = ""  # Regular expression for a library's bytes; its group is the value
    pattern: str = ""  # Regular expression for the text; its group, or all that it matches, is the value

    def values(self, machine: Machine) -> list[str]:
        """Return all values, none where nothing is found."""
        texts = next(filter(None, self._texts(machine)), [])
        if not self.pattern:
            return texts
        matches = [match for text in texts for match in re.finditer(self.pattern, text)]
        return [match[match.re.groups] for match in matches]

    def _texts(self, machine: Machine) -> Iterator[list[str]]:
        files = machine.files(*self.file.split())
        yield [text for file in files if (text := machine.text(file))] if self.pattern else files
        library = machine.library(self.library) if self.library else ""
        if self.inside:
            match = re.search(self.inside.encode(), machine.read(library)) if library else None
            library = match[1].decode() if match else ""
        output = machine.run(self.command) if self.command else ""
        version = machine.package(self.package) if self.package else ""
        for value in (output, library, version, machine.variables.get(self.variable)):
            yield [value] if value else []
        numbers = [(bus, number) for bus in ("usb", "pci") for number in getattr(self, bus).split()]
        folders = [folder for bus, number in numbers for folder in machine.bus_devices(bus, number)]
        yield [machine.text(f"{folder}/{self.attribute}") for folder in folders] if self.attribute else folders


class Need(Reading, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a machine needs, and the rule for its values."""

    name: str
    remedy: str = ""
    drivers: tuple[str, ...] = ()  # It is needed for these alone, see `NeedFile.drivers`
    boards: str = ""  # Pattern of the boards' names that need it
    when: Reading | None = None  # Needed where this has values
    unless: Reading | None = None
    group: str = ""  # Group of users who may open the files, which this one must
    least: str = ""
    most: str = ""
    good: str = ""
    bad: str = ""  # Regular expression that a right value matches, or a wrong one
    same_as: str = ""
    at_most: str = ""  # Name of an earlier need, whose value this one has, or does not exceed
    numbers: int = 4  # How many numbers of versions are compared
    bits: Mapping[int, str] = {}  # Faults by the bit that tells them
    chip: bool = False  # The value is the chip that files have to be compiled for
    runs: Mapping[str, tuple[str, ...]] = {}  # Further chips whose files a chip runs
    absent: bool = False  # It must not be there
    optional: bool = False  # Nothing is said if there is no value
    required: bool = False  # Without it, nothing else of the file is looked at
    unknown: str = ""  # Remedy where a missing value only means that this user may not read it
    finding: str = ""  # Finding of a wrong value, besides the value
    divide: int = 1
    unit: str = ""  # Unit of the value for people, by which it is divided

    def show(self, value: str) -> str:
        """Return a value for people."""
        return f"{int(value) / self.divide:.0f} {self.unit}" if self.unit and value.isdigit() else value.strip()

    def explain(self, value: str, known: Mapping[str, str], chips: Sequence[str]) -> str:
        """Explain why a value is wrong, empty if it is right."""
        text = self.show(value)
        number = version_numbers(value)[: self.numbers]
        if self.bits:
            bits = int(value, 16)
            return "; ".join(fault for bit, fault in self.bits.items() if bits >> bit & 1)
        if self.least and number < version_numbers(self.least):
            return f"{text}, less than {self.show(self.least)}"
        if self.most and number > version_numbers(self.most):
            return f"{text}, more than {self.show(self.most)}"
        for other in filter(known.get, (self.same_as, self.at_most)):
            # A library may be named by its first number alone.
            limit = version_numbers(known[other])[: min(self.numbers, len(number))]
            if number > limit or (number < limit and other == self.same_as):
                return f"{text}, while {other} is {known[other]}"
        if chips and self.chip:
            others = [chip for chip in chips if chip not in (value.lower(), *self.runs.get(value.lower(), ()))]
            return f"{others[0]}, this is {value.lower()}" if others else ""
        is_wrong = self.absent or (self.bad and re.search(self.bad, value)) or not re.search(self.good, value)
        return text if is_wrong else ""


class NeedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of needs."""

    checks: tuple[Need, ...]
    drivers: tuple[str, ...] = ()
    """Beginnings of kinds, loaders, delegates or providers that have these needs; none for every machine."""
    present: Reading | None = None  # What tells that they are here, where no board is named
    when: Reading | None = None

    def applies(self, machine: Machine, request: Request) -> bool:
        """Test if the request, or without one the machine, has these needs."""
        if self.when is not None and not self.when.values(machine):
            return False
        is_here = request.is_open and self.present is not None and self.present.values(machine)
        return not self.drivers or bool(request.drivers(*self.drivers)) or bool(is_here)


@cache
def need_files() -> tuple[NeedFile, ...]:
    """Return all files of needs."""
    folder = Path(boards_package.__file__).parent / "needs"
    tables = (board_file.parse_table(path.read_bytes()) for path in sorted(folder.glob("*.toml")))
    return tuple(msgspec.convert(table, NeedFile, strict=False) for table in tables)


def version_numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of the first version in a text."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def examine(machine: Machine, request: Request) -> Iterator[Check]:
    """Check the needs of the request, or of what is here."""
    for file in need_files():
        if not file.applies(machine, request):
            continue
        chips = [chip for device in request.drivers(*file.drivers) for chip in request.chips(device)]
        known = {f"the {header.format}'s version": header.version for _, header in request.compiled}
        checks: dict[str, Check] = {}
        for need in file.checks:
            if not _is_needed(need, machine, request) or (need.chip and not chips):
                continue
            values = need.values(machine)
            known[need.name] = next(iter(values), "")
            check = _judge(need, values, known, chips, machine) if values else _describe_absence(need)
            # Of several needs of one name, the first that is not met counts.
            if check is not None and not (need.name in checks and checks[need.name].is_fault):
                checks[need.name] = check
            if need.required and not values:
                break
        yield from checks.values()


def _is_needed(need: Need, machine: Machine, request: Request) -> bool:
    return (
        (not need.drivers or bool(request.drivers(*need.drivers)))
        and fnmatch(request.name, need.boards or "*")
        and (need.when is None or bool(need.when.values(machine)))
        and (need.unless is None or not need.unless.values(machine))
    )


def _describe_absence(need: Need) -> Check | None:
    if need.absent or need.optional:
        return None
    if need.unknown:
        return Check(need.name, UNKNOWN, "it does not tell", need.unknown)
    place = need.file or need.library or need.package or need.variable or need.command
    return Check(need.name, MISSING, f"there is no {place or f'device {need.usb} {need.pci}'}", need.remedy)


def _judge(
    need: Need, values: Sequence[str], known: Mapping[str, str], chips: Sequence[str], machine: Machine
) -> Check | None:
    if need.group and (forbidden := [value for value in values if not machine.may_open(value)]):
        return access_check(need.name, ", ".join(forbidden), need.group)
    faults = [need.explain(value, known, chips) for value in values]
    # A board's chip has several names, from the exact one to the family's.
    if (all if need.chip else any)(faults):
        finding = next(filter(None, faults))
        return Check(need.name, WRONG, ", ".join(filter(None, (finding, need.finding))), need.remedy)
    largest = sorted(values, key=version_numbers)[-1:] if need.most else dict.fromkeys(values)
    finding = ", ".join(map(need.show, largest))
    foreign = [chip for chip in chips if need.chip and chip not in finding.lower()]
    return Check(need.name, OK, f"{finding}, which runs files for {foreign[0]}" if foreign else finding)
