"""``ros2 run soc_pipeline node``: `soc-pipeline node` with the arguments of ROS 2."""

import sys

from pipeline.cli import main as run


def main() -> None:
    """Run the node until it is asked to end."""
    arguments = sys.argv[1:]
    # What ros2 launch hands over begins with this; without it, all there is are the node's own options.
    sys.exit(run(["node", *arguments] if arguments else ["node", "--help"]))


if __name__ == "__main__":
    main()
