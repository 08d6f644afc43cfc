"""The package for ROS 2: what colcon installs, and what its launch file and configuration say."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pipeline.ros.configuration_file import read_configuration
from pipeline.ros.ros_arguments import RosArguments

DETECTIONS, IMAGE = "vision_msgs/msg/Detection2DArray", "sensor_msgs/msg/Image"


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "distributions" / "ros"


def test_what_is_installed_lies_where_ros2_looks_for_it(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "package")
    line = [sys.executable, "setup.py", "-q", "install", "--prefix", str(tmp_path / "install")]
    line += ["--single-version-externally-managed", "--record", str(tmp_path / "record")]
    end = subprocess.run(line, cwd=copy, capture_output=True, text=True, check=False)
    assert end.returncode == 0, end.stderr
    files = {
        "share/ament_index/resource_index/packages/soc_pipeline",
        "share/soc_pipeline/package.xml",
        "share/soc_pipeline/launch/detect.launch.py",
        "share/soc_pipeline/config/detect.yaml",
        "lib/soc_pipeline/node",
    }
    installed = {str(path.relative_to(tmp_path / "install")) for path in (tmp_path / "install").rglob("*")}
    assert files <= installed


def test_the_manifest_is_that_of_a_python_package(folder: Path) -> None:
    package = ET.parse(folder / "package.xml").getroot()
    assert (package.get("format"), package.findtext("name")) == ("3", "soc_pipeline")
    assert package.findtext("export/build_type") == "ament_python"
    # Of each message and service that the node has over rclpy.
    packages = {each.text for each in package.findall("exec_depend")}
    assert {"rclpy", "launch_ros", "lifecycle_msgs", "sensor_msgs", "std_srvs", "vision_msgs"} <= packages


def test_the_configuration_takes_what_the_launch_file_sets(folder: Path) -> None:
    pytest.importorskip("yaml")
    words = (
        "-r __node:=detector -r __ns:=/robot -r image:=/camera/image_raw -p bundle:=yolox.bundle -p autostart:=false"
    )
    arguments = RosArguments.parse(
        [*words.split(), "-p", "autostart:=false", "--params-file", str(folder / "config" / "detect.yaml")]
    )
    configuration = read_configuration("", ros=arguments)
    assert (configuration.bundle, configuration.transport, configuration.autostart) == ("yolox.bundle", "rclpy", False)
    assert configuration.subscribe.topic == "/camera/image_raw"
    assert {(each.topic, each.type, each.part) for each in configuration.publish} == {
        ("/robot/detector/detections", DETECTIONS, ""), ("/robot/detector/image", IMAGE, "annotated"),
    }  # fmt: skip


def test_each_parameter_of_the_launch_file_is_a_key_of_the_node(folder: Path) -> None:
    tree = ast.parse((folder / "launch" / "detect.launch.py").read_text(encoding="utf-8"))
    (arguments,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "ARGUMENTS"
    )
    assert isinstance(arguments, ast.Dict)
    names = {ast.literal_eval(key) for key in arguments.keys if key is not None}
    # The first three are topics, names and files; the others are handed over as parameters.
    assert names == {"image", "config", "name", "namespace", "bundle", "transport", "autostart", "use_sim_time"}
