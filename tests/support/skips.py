"""Skips that an installation could have avoided: noted by one run, and failures in a run that has all extras.

pytest --note-skips FILE; make all-extras; pytest --require-extras @FILE
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

NOT_TO_BE_INSTALLED = (
    "processor", "x86", "one core", "CUDA", "there is a GPU", "Arm board", "this system", "files with holes",
    "beside the project",
)  # fmt: skip
"""Words in the reasons of skips that hang on the hardware, the system, or on what lies beside the project."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("skips")
    group.addoption("--note-skips", metavar="FILE", help="write the tests that were skipped for want of an extra")
    group.addoption(
        "--require-extras", action="store_true", help="let tests fail that are skipped for want of an extra"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin the notes, in the process that gets all reports."""
    if (path := config.getoption("--note-skips")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Notes(Path(path)))


def reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test or a file of tests was skipped, empty if an installation would not help or it was not."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return ""
    text = report.longrepr[2]
    return "" if any(words in text for words in NOT_TO_BE_INSTALLED) else text


class Notes:
    """Writes the skipped tests, and whole files of them, one a line."""

    def __init__(self, path: Path) -> None:
        self._path, self._names = path, dict[str, None]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test."""
        if reason(report):
            self._names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file; each worker reports it."""
        if reason(report):
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        """Write."""
        self._path.write_text("".join(f"{name}\n" for name in self._names), encoding="utf-8")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure, if extras are required."""
    report = yield
    if item.config.getoption("--require-extras") and (skip_reason := reason(report)):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped, with all extras: {skip_reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole file into a failure, if extras are required."""
    report = yield
    if collector.config.getoption("--require-extras") and (skip_reason := reason(report)):
        report.outcome, report.longrepr = "failed", f"{collector.nodeid} was skipped, with all extras: {skip_reason}"
    return report
