"""The executable of the package for ROS 2."""
