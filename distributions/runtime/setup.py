"""Build of the distribution soc-stages-runtime."""

import sys
from pathlib import Path

from setuptools import setup

# Of this folder, since in a source archive it lies beside this file.
sys.path.insert(0, str(Path(__file__).parents[0]))
sys.path.insert(0, str(Path(__file__).parents[1]))

from parts import RuntimeBuild, RuntimeSource, RuntimeWheel  # it lies in a folder, in no package

setup(cmdclass={"build_py": RuntimeBuild, "sdist": RuntimeSource, "bdist_wheel": RuntimeWheel})
