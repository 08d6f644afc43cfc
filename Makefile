# Each target sets up its own environment in .venv when needed; nothing but Python and make has to be there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Arguments handed on: make demo ARGS="--stages 3", make test ARGS="-k digits", make bench ARGS=--quick
ARGS ?=
# A build for the CPU, where the newest one brings gigabytes for GPUs.
TORCH ?= torch==2.13.0
# Recurrent models for tests, without what the package itself would run them by.
SILERO := 'silero-vad>=6,<7'
BENCHMARKS := hop efficiency admission throughput tracing partition interpreter soak swaps

.PHONY: help demo test test-thorough test-bare test-slow crowd all-extras arm-board ros-peers rknn vela test-ros runner lint bench docs wheels release clean
# Two installations into one environment at once would spoil it.
.NOTPARALLEL:

help:  ## say what the targets do
	@sed -n 's/^\([a-z-]*\): .*## /  make \1\t/p' Makefile | expand -t 20

demo: $(VENV)/demo-installed  ## find digits on pictures by a trained detector, unsplit and in stages, and draw boxes and timeline
	$(BIN)/soc-pipeline demo $(ARGS)

test: $(VENV)/dev-installed  ## run the fast tests, on all cores
	$(BIN)/python -m pytest --numprocesses auto $(ARGS)

# Those of files that take long in all, such as numerics of kernels over shapes, or the guide from end to end.
test-thorough: $(VENV)/dev-installed  ## run files of many cases that 'make test' leaves out, five to ten minutes
	$(BIN)/python -m pytest --numprocesses auto -m 'thorough and not slow' $(ARGS)

# Also where the tools were named by variables.
test-bare: $(VENV)/dev-installed  ## run the fast tests as in a container that has just Python and make: a PATH without compilers and other tools
	rm -rf build/bare
	$(BIN)/python -m tests.support.bare_path build/bare
	env -u CC -u CXX PATH="$$PWD/build/bare" $(BIN)/python -m pytest --numprocesses auto $(ARGS)

test-slow: $(VENV)/dev-installed  ## run the tests that take minutes, some on an emulated Arm board if one can be had
	-@$(MAKE) --no-print-directory arm-board
	$(BIN)/python -m pytest --numprocesses auto -m slow --timeout 1800 -o faulthandler_timeout=1790 $(ARGS)

crowd: $(VENV)/all-installed  ## let 32 clients come and go for ten minutes, and bundles be loaded in threads in 300 processes
	CROWD_SECONDS=600 LOADING_RUNS=100 $(BIN)/python -m pytest -m slow -o faulthandler_timeout=0 \
	  tests/remote/test_runtimes_crowd.py tests/executor/test_loading_threads.py $(ARGS)

all-extras: $(VENV)/all-installed  ## install the packages without which tests are skipped: PyTorch, TFLite, a browser's driver

arm-board: $(VENV)/arm-board/python  ## make an emulated 64-bit Arm board for tests: one to three minutes, 900 MB

ros-peers: $(VENV)/ros-kilted/installed  ## install ROS 2 Kilted for tests, from the package index: Python 3.11, 250 MB

rknn: $(VENV)/rknn/installed  ## install Rockchip's compiler for slow tests: x86-64, Python 3.10 to 3.12, 1.5 GB

vela: $(VENV)/vela/installed  ## install Arm's compiler for Ethos-U for slow tests

test-ros: ros-peers $(VENV)/ros-jazzy/installed  ## run the node among nodes of ROS 2, Jazzy and Kilted, over both transports
	$(BIN)/python -m pytest --require-extras -m slow --timeout 600 tests/ros/test_ros2.py tests/ros/test_peers.py $(ARGS)

runner: $(VENV)/dev-installed  ## build the C++ runner into build/runner/soc-runner: soc-run, its library, and TVM's two
	$(BIN)/python runner/make.py $(ARGS)

lint: $(VENV)/dev-installed  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/dev-installed  ## measure; tables to the screen, JSON to bench-output/
	mkdir -p bench-output
	set -e; for name in $(BENCHMARKS); do $(BIN)/python bench/$$name.py --json bench-output/$$name.json $(ARGS); done

docs: $(VENV)/docs-installed  ## build the pages of docs/ and the API reference into site/; fails on a dead link
	$(BIN)/mkdocs build --strict $(ARGS)

wheels: $(VENV)/dev-installed  ## build the wheels of both distributions into dist/, for x86-64 and 64-bit Arm
	$(BIN)/python distributions/wheels.py $(ARGS)

release: $(VENV)/dev-installed  ## build both distributions, install and try them; says how to upload, and uploads nothing
	$(BIN)/python -m tools.release $(ARGS)

clean:  ## remove all that these targets made
	rm -rf $(VENV) build dist distributions/runtime/build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo-output bench-output site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/demo-installed: pyproject.toml | $(BIN)/pip
	$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/dev-installed: pyproject.toml | $(BIN)/pip
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/demo-installed

$(VENV)/docs-installed: pyproject.toml | $(BIN)/pip
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/all-installed: pyproject.toml | $(BIN)/pip
	$(PIP) --editable '.[all]' '$(TORCH)'
	$(PIP) --no-deps $(SILERO)
	@touch $@ $(VENV)/dev-installed $(VENV)/demo-installed $(VENV)/docs-installed

$(VENV)/arm-board/python: pyproject.toml tests/support/arm_board.py | $(VENV)/dev-installed
	$(BIN)/python -m tests.support.arm_board $(VENV)/arm-board

# In environments of their own: these packages bring a NumPy of their own, and more.  What the project needs is found in
# that of the other tests.
$(VENV)/ros-%/installed: | $(VENV)/dev-installed
	$(BIN)/python -m venv --clear $(VENV)/ros-$*
	$(VENV)/ros-$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  $(addprefix ros-$*-,rclpy rmw-fastrtps-cpp sensor-msgs std-srvs lifecycle-msgs diagnostic-msgs)
	$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' > \
	  "$$($(VENV)/ros-$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/project.pth"
	@touch $@

# It asks for an old PyTorch with CUDA, and runs with this one; newer setuptools lack what it imports.
$(VENV)/rknn/installed: | $(BIN)/pip
	$(BIN)/python -m venv --clear $(VENV)/rknn
	$(VENV)/rknn/bin/python -m pip install --quiet --disable-pip-version-check '$(TORCH)' 'setuptools<81' \
	  'protobuf>=4.21.6,<=4.25.4' 'numpy<=1.26.4' 'onnx>=1.16.1,<=1.18.0' 'onnxruntime<1.24' 'opencv-python<4.12' \
	  psutil ruamel.yaml scipy tqdm fast-histogram
	$(VENV)/rknn/bin/python -m pip install --quiet --disable-pip-version-check --no-deps rknn-toolkit2==2.5.0
	@touch $@

$(VENV)/vela/installed: | $(BIN)/pip
	$(BIN)/python -m venv --clear $(VENV)/vela
	$(VENV)/vela/bin/python -m pip install --quiet --disable-pip-version-check ethos-u-vela==5.2.0
	@touch $@

# pip is the last thing that venv puts there, so that an interrupted start begins again.
$(BIN)/pip:
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no '$(PYTHON)' found; install Python 3.10 or newer, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1), but soc-pipeline needs Python 3.10 or newer;" \
	    "name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
