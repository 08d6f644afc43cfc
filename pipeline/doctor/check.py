"""Check: one line of the doctor."""

from __future__ import annotations

from dataclasses import dataclass

OK, MISSING, WRONG, UNKNOWN = "ok", "missing", "wrong", "unknown"


@dataclass(frozen=True)
class Check:
    """State of one thing that a machine needs."""

    name: str
    state: str
    """``"ok"``, ``"missing"``, ``"wrong"``, or ``"unknown"`` where this user may not read it."""
    finding: str
    remedy: str = ""
    """Command that mends it, or what to do by hand; empty if nothing has to be done."""

    @property
    def is_fault(self) -> bool:
        """True if something is missing or wrong."""
        return self.state in (MISSING, WRONG)


def problem_check(name: str, state: str, problem: str) -> Check:
    """Return a check of a message that has its remedy behind a semicolon."""
    finding, _, remedy = problem.partition("; ")
    return Check(name, state, finding, remedy.removeprefix("run: "))


def access_check(name: str, file: str, group: str) -> Check:
    """Return a check of a file that only others may open."""
    remedy = f"sudo usermod -aG {group} $USER, then log in again"
    return Check(name, WRONG, f"this user may not open {file}", remedy)
