"""What has to be true before a release: one version in all files, and its part in the changelog."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import release


def write_tree(folder: Path, versions: tuple[str, str, str], changelog: str) -> Path:
    code, full, runtime = versions
    texts = {
        "pipeline/system/version.py": f'VERSION = "{code}"\n',
        "pyproject.toml": f'[project]\nname = "soc-stages"\nversion = "{full}"\n',
        "distributions/runtime/pyproject.toml": f'[project]\nversion = "{runtime}"\n',
        "CHANGELOG.md": changelog,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_this_tree_states_one_version(root: Path) -> None:
    assert release.stated_version(root)


def test_versions_that_differ_are_named(tmp_path: Path) -> None:
    tree = write_tree(tmp_path, ("1.0", "1.0", "0.9"), "")
    with pytest.raises(release.ReleaseError, match=r"version.py has 1\.0, .*runtime/pyproject.toml has 0\.9"):
        release.stated_version(tree)


@pytest.mark.parametrize(
    ("changelog", "problem"),
    [
        ("# Changelog\n\n## 1.0\n\n- One thing.\n\n## 0.9\n\n- Another.\n", ""),
        (
            "# Changelog\n\n## Unreleased\n\n- One thing.\n\n## 0.9\n",
            "begins with 'Unreleased', and the version is 1.0",
        ),
        ("# Changelog\n\n## 0.9\n\n- Another.\n", "begins with '0.9', and the version is 1.0"),
        ("# Changelog\n\n## 1.0\n\n## 0.9\n\n- Another.\n", "says nothing of 1.0"),
        ("# Changelog\n", "begins with 'nothing'"),
    ],
)
def test_the_changelog_begins_with_the_version(changelog: str, problem: str, tmp_path: Path) -> None:
    tree = write_tree(tmp_path, ("1.0", "1.0", "1.0"), changelog)
    if not problem:
        release.check_changelog(tree, release.stated_version(tree))
        return
    with pytest.raises(release.ReleaseError, match=problem):
        release.check_changelog(tree, "1.0")


def test_a_release_has_what_is_committed(tmp_path: Path) -> None:
    repository, folder = tmp_path / "repository", tmp_path / "export"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=me", "-c", "user.email=me@example.org"]
    try:
        subprocess.run([*git, "init", "--quiet"], check=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    (repository / "committed.txt").write_text("first\n")
    subprocess.run([*git, "add", "committed.txt"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "Add a file"], check=True)
    (repository / "committed.txt").write_text("second\n")
    (repository / "left.txt").write_text("never added\n")
    release.export_commit(repository, folder)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("committed.txt", "first\n")]
