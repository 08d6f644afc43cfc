"""The node for ROS 2: messages, transports, configuration."""
