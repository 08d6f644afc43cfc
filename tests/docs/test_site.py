"""`make docs`: a site that needs no other host, and none with a dead link."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

PACKAGES = ("mkdocs", "material", "mkdocstrings_handlers.python")


def absent() -> list[str]:
    names = []
    for package in PACKAGES:
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            names.append(package)
    return names


pytestmark = pytest.mark.skipif(bool(absent()), reason="mkdocs is not installed, or not all that the site needs of it")


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: warnings that are not printed are none for --strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = build(root, folder)
    assert result.returncode == 0, result.stderr
    return folder


class Fetched(HTMLParser):
    """Collects what a browser fetches to show a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses of scripts, styles, icons, pictures and frames."""
        if tag in ("script", "link", "img", "iframe", "source", "video", "audio", "embed", "object"):
            self.addresses += [value for name, value in attrs if name in ("src", "href", "data", "srcset") and value]


def test_every_page_is_built(site: Path, root: Path) -> None:
    pages = {path.stem for path in (root / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}


def test_pages_fetch_nothing_from_another_host(site: Path) -> None:
    addresses = {path.name: Fetched(path.read_text(encoding="utf-8")).addresses for path in site.rglob("*.html")}
    assert any(address.endswith(".js") for address in addresses["index.html"])
    foreign = [(name, each) for name, links in addresses.items() for each in links if re.match(r"(\w+:)?//", each)]
    assert foreign == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"""(?:url\(|@import\s+)["']?(?:https?:)?//""", styles)


@pytest.mark.parametrize("name", ["pipeline.read", "pipeline.Plan", "pipeline.errors.StageError"])
def test_the_reference_has_the_public_names(site: Path, name: str) -> None:
    assert f'id="{name}"' in (site / "reference.html").read_text(encoding="utf-8")


def test_a_dead_link_is_an_error(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "docs", tmp_path / "docs")
    shutil.copy(root / "mkdocs.yml", tmp_path)
    (tmp_path / "pipeline").symlink_to(root / "pipeline")
    with (tmp_path / "docs" / "limits.md").open("a", encoding="utf-8") as page:
        page.write("\n[dead](nowhere.md) [dead too](guide.md#nowhere)\n")
    result = build(tmp_path, tmp_path / "site")
    assert result.returncode != 0
    # Each is a warning, and any warning an error.
    for link in ("nowhere.md", "guide.md#nowhere"):
        assert any(link in line for line in result.stderr.splitlines() if line.startswith("WARNING"))
