"""NPUs of Rockchip's (RK3588, RK3576, RK3568, ...): a loader for RKNN, and the command that compiles for it.

Never run on the chip: written after Rockchip's documents, and tested with a stand-in for their packages.

On the board, rknn-toolkit-lite2 runs the artifacts; rknn-toolkit2, on a PC or the board, makes them. To install it,
copy this file as soc_pipeline_rknn.py beside this pyproject.toml, and call 'pip install .':

    [project]
    name = "soc-pipeline-rknn"
    version = "0.1"

    [project.entry-points."soc_pipeline.loaders"]
    rknn = "soc_pipeline_rknn:RknnLoader"

    [tool.setuptools]
    py-modules = ["soc_pipeline_rknn"]

The board 'rk3588' has its devices. Their options: core_mask, by default NPU_CORE_AUTO; one of NPU_CORE_0, NPU_CORE_1,
NPU_CORE_2, NPU_CORE_0_1 and NPU_CORE_0_1_2.
"""

import argparse
import importlib.util

import numpy as np

NEWEST_OPSET = 19


class RknnLoader:
    """Runs artifacts of RKNN on one core, or several, of the NPU."""

    def __init__(self, options, cores):
        self._core_mask = options.get("core_mask", "NPU_CORE_AUTO")
        self._opened = []

    @staticmethod
    def why_absent(options):
        return "" if importlib.util.find_spec("rknnlite") else "rknn-toolkit-lite2 is not installed"

    def open(self, artifact, inputs, outputs):
        from rknnlite.api import RKNNLite

        core_mask = getattr(RKNNLite, self._core_mask)
        rknn = RKNNLite()
        # First of all, so that it is released whatever fails.
        self._opened.append(rknn)
        check("load_rknn", rknn.load_rknn(str(artifact)))
        check("init_runtime", rknn.init_runtime(core_mask=core_mask))
        return rknn, outputs

    def run(self, program, arrays):
        rknn, outputs = program
        # By default it takes the last axis for the channels; for tensors of other ranks it does not matter.
        # It may write into its inputs, and those of a pipeline are read-only where others read them too.
        inputs = [np.require(array, requirements="W") for array in arrays]
        results = rknn.inference(inputs=inputs, data_format=["nchw"] * len(inputs))
        if results is None:
            raise RuntimeError("RKNN returned nothing; its log says why")
        return [np.array(result, spec.dtype).reshape(spec.shape) for result, spec in zip(results, outputs, strict=True)]

    def close(self):
        while self._opened:
            self._opened.pop().release()


def check(title, status):
    if status != 0:
        raise RuntimeError(f"{title} of RKNN failed with {status}; its log says why")


def lower_opset(path):
    """Convert a model of a newer opset than RKNN reads, in place; return its path."""
    import onnx
    from onnx import version_converter

    model = onnx.load(path)
    if any(not opset.domain and opset.version > NEWEST_OPSET for opset in model.opset_import):
        onnx.save(version_converter.convert_version(model, NEWEST_OPSET), path)
    return path


def build(rknn, model, target, dataset=None):
    """Compile an ONNX model; with a file that lists inputs of it, quantise it before."""
    rknn.config(target_platform=target)
    check("load_onnx", rknn.load_onnx(model=lower_opset(model)))
    check("build", rknn.build(do_quantization=dataset is not None, dataset=dataset))


def main():
    """Compile an ONNX model: python -m soc_pipeline_rknn stage.onnx stage.rknn --target rk3588."""
    from rknn.api import RKNN

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("model")
    parser.add_argument("artifact")
    parser.add_argument("--target", default="rk3588", help="the chip")
    parser.add_argument("--dataset", help="a file that lists inputs of this stage; with it, the stage is quantised")
    options = parser.parse_args()
    rknn = RKNN()
    try:
        build(rknn, options.model, options.target, options.dataset)
        check("export_rknn", rknn.export_rknn(options.artifact))
    finally:
        rknn.release()


if __name__ == "__main__":
    main()
