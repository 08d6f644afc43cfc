"""A real browser, and pages of the live view in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Also as root and without a GPU; and the browser itself talks to nobody.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def open_browser() -> Iterator[Any]:
    """Give a browser, or skip the test."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright to drive a browser")
    with playwright.sync_playwright() as tool:
        path = next(filter(None, map(shutil.which, NAMES)), None)
        try:
            browser = tool.chromium.launch(executable_path=path, args=ARGUMENTS)
        except playwright.Error as error:
            pytest.skip(f"no browser: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


def until(page: Any, condition: str) -> None:
    """Wait for it from outside: the page's policy lets nobody evaluate text in it, not even its driver."""
    while not page.evaluate(condition):
        page.wait_for_timeout(50)


def open_page(browser: Any, url: str, condition: str, **options: Any) -> Any:
    """Open a page and wait for a condition; what goes wrong on it is in ``page.complaints``."""
    page = browser.new_page(**options)
    page.complaints, page.addresses = [], []
    page.on("console", lambda message: page.complaints.append(message.text))
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.on("request", lambda request: page.addresses.append(request.url))
    page.goto(url)
    until(page, condition)
    return page
