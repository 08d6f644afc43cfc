"""Stand-in for Raspberry Pi's ``rpicam-vid``: the same options, and grey pictures of changing brightness."""

from __future__ import annotations

import argparse
import io
import sys
import time


def main() -> int:
    """Write pictures to standard output, and the program's usual lines to standard error."""
    parser = argparse.ArgumentParser(prog="rpicam-vid")
    parser.add_argument("-t", "--timeout", type=int, default=5000, help="milliseconds; 0 is for ever")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--height", type=int, default=48)
    parser.add_argument("--framerate", type=int, default=100)
    parser.add_argument("--codec", choices=("yuv420", "mjpeg"), default="yuv420")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("-n", "--nopreview", action="store_true")
    parser.add_argument("--camera", type=int, default=0)
    options = parser.parse_args()
    if options.camera:
        print("[0:01:02] INFO Camera\nERROR: *** no cameras available ***\n", file=sys.stderr)
        return 255
    number = 0
    while not options.timeout or number < options.timeout * options.framerate / 1000:
        # More than a pipe holds, after a while.
        print(f"#{number} ({options.framerate}.00 fps) exp 33239.00 ag 1.00 dg 1.00", file=sys.stderr)
        sys.stdout.buffer.write(picture(options.codec, options.width, options.height, number % 200))
        sys.stdout.buffer.flush()
        number += 1
        time.sleep(1 / options.framerate)
    return 0


def picture(codec: str, width: int, height: int, level: int) -> bytes:
    """Return a grey picture, as it is or as JPEG."""
    if codec == "yuv420":
        return bytes([level]) * (width * height) + bytes([128]) * (width * height // 2)
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (width, height), (level,) * 3).save(file, "JPEG", quality=95)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main())
