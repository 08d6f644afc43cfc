"""Messages of ROS 2: their types and meanings."""
