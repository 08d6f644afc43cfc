"""The linker is found, and says what went wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import BuildError
from pipeline.executor import linker
from pipeline.executor.elf import undefined_symbols


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with nothing; programs put into the returned folder are found."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    return tmp_path


def program(path: Path, text: str = "") -> str:
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_user_s_compiler_goes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "gcc")
    mine = program(bare / "mine")
    assert linker.linker() == [str(bare / "gcc")]
    monkeypatch.setenv("CC", "mine")
    assert linker.linker() == [mine]


@pytest.mark.parametrize("name", ["cc", "gcc", "g++", "clang"])
def test_any_compiler_will_do(bare: Path, name: str) -> None:
    command = program(bare / name)
    assert linker.linker() == [command]


def test_a_compiler_with_options(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in CC='ccache gcc' or CC='gcc -m64'."""
    mine = program(bare / "mine")
    monkeypatch.setenv("CC", "mine -m64")
    assert linker.linker() == [mine, "-m64"]


def test_ziglang_is_a_last_resort(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name == "ziglang" else None)
    # With a target it writes code for any processor of the kind; without one, for this machine's only.
    assert linker.linker("", "x86_64")[:6] == [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu"]


def test_ziglang_brings_what_processors_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Armv7 processor need not divide whole numbers."""
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    source = tmp_path / "divide.c"
    source.write_text("int divide(int a, int b) { return a / b; }")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "arm-linux-gnueabihf", "-O1", "-fPIC", "-c"]
    subprocess.run([*compiler, "-o", str(tmp_path / "divide.o"), str(source)], check=True, timeout=100)
    assert b"__aeabi_idiv" in (tmp_path / "divide.o").read_bytes()
    linker.link(str(tmp_path / "divide.so"), str(tmp_path / "divide.o"), built_for="armv7l")
    assert b"divide" in (tmp_path / "divide.so").read_bytes()
    assert b"__aeabi_idiv" not in (tmp_path / "divide.so").read_bytes()


@pytest.mark.parametrize("cache", ["cache", "/proc/none"])
def test_ziglang_has_a_folder_to_write_to(
    bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: str
) -> None:
    """Without one it ran for ever: with a home that nobody may write to, as in a container of another user's."""
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__init__.py").touch()
    (tmp_path / "ziglang" / "__main__.py").write_text(
        "import os; open(os.environ['ZIG_GLOBAL_CACHE_DIR'], 'w').close(); open('out.so', 'w').close()"
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name == "ziglang" else None)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOC_PIPELINE_CACHE", cache)
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    linker.link("out.so", ["a.o"])
    assert (tmp_path / "cache" / "zig").exists() == (cache == "cache")


def test_none_is_one_clear_message(bare: Path) -> None:
    with pytest.raises(BuildError, match="install gcc or clang, or: pip install ziglang"):
        linker.linker()


def test_code_for_another_machine_has_another_linker(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "gcc")
    monkeypatch.setenv("CC", "gcc")
    with pytest.raises(BuildError, match="install aarch64-linux-gnu-gcc, or: pip install ziglang"):
        linker.linker("aarch64", "x86_64")
    cross = program(bare / "aarch64-linux-gnu-gcc")
    assert linker.linker("aarch64", "x86_64") == [cross]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name == "ziglang" else None)
    assert linker.linker("armv7l", "x86_64")[2:6] == ["ziglang", "cc", "-target", "arm-linux-gnueabihf"]
    assert linker.linker("x86_64", "x86_64") == [str(bare / "gcc")]


def test_what_the_linker_prints_is_in_the_message(bare: Path) -> None:
    program(bare / "cc", "import sys; sys.exit('cannot find -lmystery')")
    with pytest.raises(BuildError, match=r"linking out.so failed: cannot find -lmystery"):
        linker.link(str(bare / "out.so"), ["a.o"])


def test_objects_and_options_reach_the_linker(bare: Path) -> None:
    program(bare / "cc", "import sys; open(sys.argv[sys.argv.index('-o') + 1], 'w').write(' '.join(sys.argv[1:]))")
    linker.link(str(bare / "out.so"), ["a.o", "b.o"], ["-s"])
    assert (bare / "out.so").read_text() == f"-shared -fPIC -static-libgcc -o {bare / 'out.so'} a.o b.o -s"
    linker.link(str(bare / "out.so"), "a.o")
    assert (bare / "out.so").read_text().endswith("out.so a.o")


@pytest.mark.timeout(180)  # Zig builds its library once
@pytest.mark.parametrize("built_for", ["", "armv7l"])
def test_functions_of_the_compiler_are_in_the_library(tmp_path: Path, built_for: str) -> None:
    kind = "int" if built_for else "__int128"  # the processor divides all others
    library = link_code(tmp_path, built_for, f"{kind} divide({kind} a, {kind} b) {{ return a / b; }}")
    needs = undefined_symbols(library.read_bytes())
    assert not [name for name, version in needs.items() if not version.startswith("GLIBC_")], needs


@pytest.mark.timeout(180)
@pytest.mark.parametrize("built_for", ["", "armv7l"])
def test_a_library_without_them_is_refused(tmp_path: Path, built_for: str) -> None:
    code = "int __divide(int, int); int divide(int a, int b) { return __divide(a, b); }"
    with pytest.raises(BuildError, match=r"linking divide.so failed: __divide would be missing"):
        link_code(tmp_path, built_for, code)


def link_code(folder: Path, built_for: str, code: str) -> Path:
    """Return the library of some C, for a machine that there is a linker for."""
    try:
        linker.linker(built_for)
    except BuildError as error:
        pytest.skip(str(error))
    (folder / "divide.c").write_text(f"{code}\n")
    linker.link(str(folder / "divide.so"), [str(folder / "divide.c")], ["-O2"], built_for=built_for)
    return folder / "divide.so"
