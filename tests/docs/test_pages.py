"""The pages name files, options and Python names that there are, and the README fits where it is read."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import MissingExtra

PAGES = (
    "README.md",
    "examples/README.md",
    *(f"docs/{path.name}" for path in Path(__file__).parents[2].glob("docs/*.md")),
)


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest, root: Path) -> str:
    path: Path = root / request.param
    return path.read_text(encoding="utf-8")


def test_the_files_that_are_named_are_there(page: str, root: Path) -> None:
    folders = "bench|boards|docs|examples|pipeline|tests"
    names = set(re.findall(rf"(?<![\w/.-])(?:{folders})/[\w./-]*[\w/]", page)) - {"boards/vta"}
    assert [name for name in sorted(names) if not (root / name).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"])
def test_links_outside_of_the_site_lead_somewhere(name: str, root: Path) -> None:
    """The site's own links are checked when it is built."""
    page = root / name
    links = re.findall(r"\]\(((?!https?:)[^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8"))
    dead = [
        f"{path}#{anchor}"
        for path, anchor in links
        if not (page.parent / path).exists() or (anchor and anchor not in headings(page.parent / path))
    ]
    assert dead == []


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-") for title in titles}


def test_the_python_names_that_are_used_are_there(page: str) -> None:
    unknown_names = [
        name
        for name in sorted(set(re.findall(r"(?<![/\w])pipeline(?:\.[a-z_]\w*|\.[A-Z]\w*)+", page)))
        if not exists(name)
    ]
    assert unknown_names == []


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except MissingExtra:
        return True
    except ModuleNotFoundError:
        home: Any = importlib.import_module(module)
        return hasattr(home, attribute)
    return True


def test_the_readme_fits_on_a_screen_or_two(root: Path) -> None:
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []


def test_a_newcomer_reads_few_words(root: Path) -> None:
    pages = [
        (root / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("index", "guide", "boards", "streaming")
    ]
    assert sum(len(page.split()) for page in pages) < 5000


def test_each_make_target_that_is_named_is_there(page: str, root: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", page, re.MULTILINE)) <= targets
