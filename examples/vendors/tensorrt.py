"""GPUs of NVIDIA's by TensorRT 10: a loader for engines, which trtexec makes.

Never run on the chip: written after NVIDIA's documents, and tested with a stand-in for their packages.

It needs the packages tensorrt and cuda-python (12.6 or later). To install it, copy this file as
soc_pipeline_tensorrt.py beside this pyproject.toml, and call 'pip install .':

    [project]
    name = "soc-pipeline-tensorrt"
    version = "0.1"

    [project.entry-points."soc_pipeline.loaders"]
    tensorrt = "soc_pipeline_tensorrt:TensorRtLoader"

    [tool.setuptools]
    py-modules = ["soc_pipeline_tensorrt"]

A device for it, in a board's file; an engine is for the GPU and the version on which it was made:

    [[devices]]
    name = "gpu"
    kind = "vendor"
    memory = "gpu"
    flops = 1e12
    bytes_per_s = 4e10

    [devices.target]
    kind = "vendor"
    loader = "tensorrt"
    artifact = "{stage}.engine"
    compile = "trtexec --onnx={stage}.onnx --saveEngine={artifact}"
"""

import importlib.util

import numpy as np


class TensorRtLoader:
    """Runs engines, each in a stream of its own."""

    def __init__(self, options, cores):
        self._programs = []

    @staticmethod
    def why_absent(options):
        for package in ("tensorrt", "cuda"):
            if importlib.util.find_spec(package) is None:
                return f"the package {package!r} is not installed"
        from cuda.bindings import runtime as cuda

        status, count = cuda.cudaGetDeviceCount()
        return "" if status == cuda.cudaError_t.cudaSuccess and count else "CUDA finds no GPU"

    def open(self, artifact, inputs, outputs):
        program = Engine(artifact.read_bytes(), inputs, outputs)
        self._programs.append(program)
        return program

    def run(self, program, arrays):
        return program.run(arrays)

    def close(self):
        while self._programs:
            self._programs.pop().close()


class Engine:
    """An engine with its memory on the GPU."""

    def __init__(self, content, inputs, outputs):
        import tensorrt
        from cuda.bindings import runtime as cuda

        self._cuda, self._inputs, self._outputs = cuda, inputs, outputs
        # All of them are kept: an engine needs its runtime, and a context its engine.
        self._runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self._engine = self._runtime.deserialize_cuda_engine(content)
        if self._engine is None:
            raise RuntimeError("TensorRT does not take the engine; was it made by this version, for this GPU?")
        for spec in (*inputs, *outputs):
            self._check_tensor(spec, np.dtype(tensorrt.nptype(self._engine.get_tensor_dtype(spec.name))))
        self._context = self._engine.create_execution_context()
        self._stream = self._call(cuda.cudaStreamCreate())
        self._pointers = {}
        for spec in (*inputs, *outputs):
            self._pointers[spec.name] = self._call(cuda.cudaMalloc(spec.nbytes))
            self._context.set_tensor_address(spec.name, self._pointers[spec.name])

    def run(self, arrays):
        cuda, kinds = self._cuda, self._cuda.cudaMemcpyKind
        results = [np.empty(spec.shape, spec.dtype) for spec in self._outputs]
        for spec, array in zip(self._inputs, arrays, strict=True):
            pointer = self._pointers[spec.name]
            self._copy(pointer, array.ctypes.data, array.nbytes, kinds.cudaMemcpyHostToDevice)
        if not self._context.execute_async_v3(int(self._stream)):
            raise RuntimeError("TensorRT cannot run the engine; its log says why")
        for spec, array in zip(self._outputs, results, strict=True):
            pointer = self._pointers[spec.name]
            self._copy(array.ctypes.data, pointer, array.nbytes, kinds.cudaMemcpyDeviceToHost)
        # The results are there no earlier.
        self._call(cuda.cudaStreamSynchronize(self._stream))
        return results

    def close(self):
        for pointer in self._pointers.values():
            self._call(self._cuda.cudaFree(pointer))
        self._call(self._cuda.cudaStreamDestroy(self._stream))
        # In this order, each being made by the next.
        self._context = self._engine = self._runtime = None

    def _copy(self, target, source, size, kind):
        self._call(self._cuda.cudaMemcpyAsync(target, source, size, kind, self._stream))

    def _check_tensor(self, spec, dtype):
        shape = tuple(self._engine.get_tensor_shape(spec.name))
        if (shape, dtype) != (tuple(spec.shape), np.dtype(spec.dtype)):
            raise ValueError(f"the engine has {spec.name!r} as {dtype}{list(shape)}, and the stage {spec}")

    def _call(self, answer):
        """Return what a call of CUDA's returned behind its status."""
        status, *values = answer
        if status != self._cuda.cudaError_t.cudaSuccess:
            raise RuntimeError(f"CUDA answers {status}")
        return values[0] if values else None
