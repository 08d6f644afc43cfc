"""Build of the distribution soc-pipeline: what the runtime's distribution, which it needs, does not have."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent / "distributions"))

from parts import BuilderBuild  # it lies in a folder, in no package

setup(cmdclass={"build_py": BuilderBuild})
