"""The package for colcon: an executable ``node``, launch files and configurations."""

from setuptools import setup

setup(
    name="soc_pipeline",
    version="0.1.0",
    packages=["soc_pipeline_ros"],
    data_files=[
        ("share/ament_index/resource_index/packages", ["resource/soc_pipeline"]),
        ("share/soc_pipeline", ["package.xml"]),
        ("share/soc_pipeline/launch", ["launch/detect.launch.py"]),
        ("share/soc_pipeline/config", ["config/detect.yaml"]),
    ],
    zip_safe=False,
    entry_points={"console_scripts": ["node = soc_pipeline_ros.node:main"]},
)
