"""A detector on a camera.

ros2 launch soc_pipeline detect.launch.py image:=/camera/image_raw bundle:=yolox.bundle
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from launch_ros.substitutions import FindPackageShare

ARGUMENTS = {
    "bundle": (None, "folder of the bundle"),
    "image": ("image", "topic of the camera"),
    "name": ("detector", "name of the node"),
    "namespace": ("", "its namespace"),
    "config": (
        PathJoinSubstitution([FindPackageShare("soc_pipeline"), "config", "detect.yaml"]),
        "file of parameters",
    ),
    "transport": ("rclpy", "rclpy, dds or zenoh"),
    "autostart": ("true", "false: others configure and activate the node"),
    "use_sim_time": ("false", "true: the time of /clock"),
}


def generate_launch_description() -> LaunchDescription:
    """Return the node with its arguments."""
    flags = {name: ParameterValue(LaunchConfiguration(name), value_type=bool) for name in ("autostart", "use_sim_time")}
    texts = {name: ParameterValue(LaunchConfiguration(name), value_type=str) for name in ("bundle", "transport")}
    node = Node(
        package="soc_pipeline",
        executable="node",
        name=LaunchConfiguration("name"),
        namespace=LaunchConfiguration("namespace"),
        parameters=[LaunchConfiguration("config"), {**texts, **flags}],
        remappings=[("image", LaunchConfiguration("image"))],
        output="screen",
    )
    declarations = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declarations, node])
