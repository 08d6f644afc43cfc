"""A bundle that others write to, replace or copy while it is loaded: old results, new ones, or one clear error."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from pipeline.executor.bundle import Bundle
from pipeline.split.graph import Graph
from tests.support.bundles import assert_refused, outputs, scale_parameters
from tests.support.onnx_models import assert_close, frame


@pytest.fixture(scope="session")
def successor(small_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with the same files in the same sizes, whose parameters are others."""
    path = tmp_path_factory.mktemp("successor") / "little.bundle"
    Bundle(small_bundle.plan, [scale_parameters(code, 2.0) for code in small_bundle.codes]).save(path)
    return path


def overwrite(folder: Path, source: Path) -> None:
    """Copy as ``cp -r`` does over what is there: each file is emptied first, then written."""
    for file in sorted(source.iterdir()):
        with file.open("rb") as read, (folder / file.name).open("wb") as version:
            shutil.copyfileobj(read, version)


def truncate(folder: Path) -> None:
    for file in folder.iterdir():
        with file.open("r+b") as stream:
            stream.truncate(0)


def test_a_bundle_that_was_loaded_does_not_follow_its_files(
    small_bundle: Bundle, bundle_copy: Path, successor: Path, graph: Graph
) -> None:
    values = frame(graph)
    reference = outputs(small_bundle, values)
    first_load, second_load = Bundle.load(bundle_copy), Bundle.load(bundle_copy)
    assert_close(outputs(first_load, values), reference, 0)
    overwrite(bundle_copy, successor)
    assert_close(outputs(first_load, values), reference, 0)
    assert_close(outputs(second_load, values), reference, 0)
    new_bundle = outputs(Bundle.load(bundle_copy), values)
    assert any(not np.array_equal(new_bundle[name], reference[name]) for name in reference)


def test_a_bundle_that_was_loaded_is_saved_as_it_was(bundle_copy: Path, pristine: Path, successor: Path) -> None:
    reloaded = Bundle.load(bundle_copy)
    overwrite(bundle_copy, successor)
    reloaded.save(bundle_copy.parent / "again.bundle")
    for path in pristine.iterdir():
        assert (bundle_copy.parent / "again.bundle" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("file", ["manifest.json", "stage0.parameters"])
def test_half_a_copy_in_place_is_refused_with_what_to_do_instead(bundle_copy: Path, successor: Path, file: str) -> None:
    """Either the manifest or a part is the new one already, as somebody meets it who loads during the copy."""
    shutil.copyfile(successor / file, bundle_copy / file)
    assert_refused(bundle_copy, "to replace a bundle, copy the new one beside it, then rename")


LOADER = """
import hashlib, sys
import numpy as np
import pipeline
from pipeline.errors import BundleError

def result(running):
    names = [spec.name for spec in running.plan.inputs]
    generator = np.random.default_rng(0)
    frame = {spec.name: generator.random(spec.shape, np.float32) for spec in running.plan.inputs}
    found = running.submit(frame).result(60)
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in found.values())).hexdigest()

path, times = sys.argv[1], int(sys.argv[2])
for number in range(times):
    try:
        running = pipeline.load(path)
    except BundleError as error:
        assert len(str(error).splitlines()) == 1, error
        print("refused", flush=True)
        continue
    with running:
        print(result(running), flush=True)
        if times == 1:
            sys.stdin.readline()
            print(result(running), flush=True)
"""


def loader(path: Path, times: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOADER, str(path), str(times)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results(process: subprocess.Popen[str]) -> list[str]:
    report, complaints = process.communicate(timeout=100)
    assert (process.returncode, complaints) == (0, "")
    return report.split()


def test_a_pipeline_survives_that_its_bundle_is_truncated(bundle_copy: Path) -> None:
    """Its mapped pages used to be gone: the system ended the process with SIGBUS."""
    with loader(bundle_copy, 1) as process:
        assert process.stdout is not None
        first = process.stdout.readline().strip()
        truncate(bundle_copy)
        assert results(process) == [first]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["overwritten", "truncated and restored", "saved"])
def test_loading_meets_the_old_or_the_new_bundle(
    change: str, small_bundle: Bundle, bundle_copy: Path, pristine: Path, successor: Path
) -> None:
    legal = set()
    for path in (pristine, successor):
        with loader(path, 2) as process:
            legal |= set(results(process))
    assert len(legal) == 2
    other_bundle = Bundle.load(successor)
    turns: dict[str, Sequence[Callable[[], None]]] = {
        "overwritten": [lambda: overwrite(bundle_copy, successor), lambda: overwrite(bundle_copy, pristine)],
        "truncated and restored": [lambda: truncate(bundle_copy), lambda: overwrite(bundle_copy, pristine)],
        "saved": [lambda: other_bundle.save(bundle_copy), lambda: small_bundle.save(bundle_copy)],
    }
    with loader(bundle_copy, 40) as process:
        number = 0
        while process.poll() is None:
            turns[change][number % 2]()
            # Long enough between two changes that some loads come through, and short enough that others do not.
            time.sleep(0.001 * (number % 7) + 0.05 * (number % 4 == 3))
            number += 1
        outputs = results(process)
    assert len(outputs) == 40
    assert set(outputs) <= {*legal, *([] if change == "saved" else ["refused"])}
    assert legal & set(outputs)
