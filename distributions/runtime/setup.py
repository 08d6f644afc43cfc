"""Build of the distribution soc-pipeline-runtime."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parents[1]))

from parts import RuntimeBuild, RuntimeWheel  # it lies in a folder, in no package

setup(cmdclass={"build_py": RuntimeBuild, "bdist_wheel": RuntimeWheel})
