"""Bundles of model files are built once, and again when anything that they are built from has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import BundleError, ModelError
from pipeline.executor.bundle import Bundle
from pipeline.workflow import model_cache
from tests.support import media


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is called a model; its builds are counted, and nobody reads it."""
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.tflite"
    path.write_bytes(b"first")
    return path


@pytest.fixture
def saved_bundle(tmp_path: Path) -> Callable[[], Bundle]:
    """Builder of a bundle that can be saved."""
    path = tmp_path / "built.bundle"
    media.identity((4, 4, 3)).save(path)
    return lambda: Bundle.load(path)


def test_a_model_is_built_once(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    folder, is_new = model_cache.find_or_build(model, saved_bundle, {"stages": 2})
    assert is_new
    assert model_cache.find_or_build(model, saved_bundle, {"stages": 2}) == (folder, False)
    assert Bundle.load(folder).plan == saved_bundle().plan
    assert model_cache.find_or_build(model, saved_bundle, {"stages": 2}, again=True) == (folder, True)


@pytest.mark.parametrize("name", ["model.tflite", "model.toml", "model.modelinfo", "model.tflite.modelinfo"])
def test_a_changed_file_is_built_again(model: Path, saved_bundle: Callable[[], Bundle], name: str) -> None:
    model_cache.find_or_build(model, saved_bundle, {})
    (model.parent / name).write_bytes(b"labels = 'names.txt'")
    assert model_cache.find_or_build(model, saved_bundle, {})[1]
    assert not model_cache.find_or_build(model, saved_bundle, {})[1]
    if name == "model.toml":
        (model.parent / "names.txt").write_text("cat\ndog\n")
        assert model_cache.find_or_build(model, saved_bundle, {})[1]


def test_a_card_beside_it_may_list_its_labels(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    # This once ended in a traceback, behind the build.
    model.with_suffix(".toml").write_text('labels = ["cat", "dog"]')
    assert model_cache.find_or_build(model, saved_bundle, {})[1]


def test_other_options_are_another_bundle(model: Path, saved_bundle: Callable[[], Bundle], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("{}")
    first, _ = model_cache.find_or_build(model, saved_bundle, {"plan": "plan.json"}, [plan])
    plan.write_text("{ }")
    second, _ = model_cache.find_or_build(model, saved_bundle, {"plan": "plan.json"}, [plan])
    third, _ = model_cache.find_or_build(model, saved_bundle, {"stages": 3})
    assert len({first, second, third}) == 3


def test_data_beside_an_onnx_file_belong_to_it(tmp_path: Path, model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.support.onnx_models import node, save, weights

    path = save(
        tmp_path / "big.onnx", [node("Conv", "x w", "y")], {"x": (1, 4, 8, 8)}, ["y"], {"w": weights(4, 4, 3, 3)}
    )
    proto = onnx.load(path)
    onnx.save(proto, path, save_as_external_data=True, location="big.weights", size_threshold=0)
    model_cache.find_or_build(path, saved_bundle, {})
    assert not model_cache.find_or_build(path, saved_bundle, {})[1]
    data = bytearray((tmp_path / "big.weights").read_bytes())
    data[0] ^= 1
    (tmp_path / "big.weights").write_bytes(data)
    assert model_cache.find_or_build(path, saved_bundle, {})[1]


def test_a_model_that_changes_meanwhile(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    def build() -> Bundle:
        model.write_bytes(b"second")
        return saved_bundle()

    with pytest.raises(ModelError, match="has changed while it was built; run the command again"):
        model_cache.find_or_build(model, build, {})
    assert model_cache.find_or_build(model, saved_bundle, {})[1]


def test_one_of_several_builds(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    """Those who want the same bundle at once wait for the first one."""
    builds, results = [], []

    def build() -> Bundle:
        builds.append(threading.get_ident())
        return saved_bundle()

    threads = [
        threading.Thread(target=lambda: results.append(model_cache.find_or_build(model, build, {}))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(builds) == 1
    assert sorted(is_new for _, is_new in results) == [False, False, False, True]


def test_a_build_that_fails_leaves_nothing(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    def fail() -> Bundle:
        raise ModelError("no such operator")

    with pytest.raises(ModelError, match="no such operator"):
        model_cache.find_or_build(model, fail, {})
    assert model_cache.find_or_build(model, saved_bundle, {})[1]


def test_the_least_recently_used_make_room(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    folders = [
        model_cache.find_or_build(model, saved_bundle, {"stages": number})[0]
        for number in range(model_cache.MOST_BUNDLES + 2)
    ]
    there = [folder.exists() for folder in folders]
    assert (sum(there), there[-1]) == (model_cache.MOST_BUNDLES, True)


def test_a_cache_that_cannot_be_written(
    model: Path, saved_bundle: Callable[[], Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SOC_PIPELINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(BundleError, match="set SOC_PIPELINE_CACHE to a folder that you may write to"):
        model_cache.find_or_build(model, saved_bundle, {})


def test_no_model(model: Path, saved_bundle: Callable[[], Bundle]) -> None:
    with pytest.raises(ModelError, match=r"no model at .*; did you mean 'model.tflite'\?"):
        model_cache.find_or_build(model.with_name("modle.tflite"), saved_bundle, {})
