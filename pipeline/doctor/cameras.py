"""Cameras: Video4Linux, libcamera, GStreamer, network streams and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pipeline.doctor.check import MISSING, OK, WRONG, Check, access_check, problem_check
from pipeline.doctor.machine import Machine
from pipeline.doctor.request import Request
from pipeline.io.child_process import split_command
from pipeline.io.gstreamer import DEBIAN_PACKAGES, SYSTEM_FOLDER, missing_element
from pipeline.io.sources.registry import find_source
from pipeline.system.distribution import install_command

VIDEO_CLASS = "/sys/class/video4linux"

# Codecs, image processors and raw receivers have numbers of the same row
# (https://github.com/raspberrypi/rpicam-apps/issues/463).
NO_CAMERA = re.compile(r"bcm2835|codec|isp|decoder|encoder|rpivid|hevc|rkvdec|hantro|rga|loopback|unicam|cfe|vi-output")
RAW_RECEIVER = re.compile(r"unicam|rp1-cfe")
CONFIGURATION = "/boot/firmware/config.txt"
LISTS = {"rpicam-hello": "--list-cameras", "libcamera-hello": "--list-cameras", "cam": "--list"}
"""Programs of libcamera that list cameras."""


def examine(machine: Machine, request: Request) -> Iterator[Check]:
    """Check the sources that are asked for, else the cameras that are here."""
    for uri in (find_source(source)[1] for source in request.sources):
        kind, location = uri.kind, uri.location
        if kind == "camera":
            yield _video_file(machine, location)
        if kind == "camera" or location.startswith("//") or (kind == "exec" and "size" not in uri.options):
            version, remedy = machine.package("av"), install_command("video")
            yield Check("av", OK, version) if version else Check("av", MISSING, "it is not installed", remedy)
        if kind == "exec":
            name = split_command(location)[0]
            file, remedy = machine.program(name), f"apt-file search bin/{name}"
            yield Check(name, OK, file) if file else Check(name, MISSING, "there is no such command", remedy)
        if kind == "gst":
            yield from _gstreamer(machine, location)
        if re.search(r"libcamera|rpicam", location):
            yield from _libcamera(machine)
    if not request.sources:
        for file in machine.files(f"{VIDEO_CLASS}/video*/name"):
            name = file.split("/")[4]
            if not NO_CAMERA.search(machine.text(file)) and not _is_metadata(machine, name):
                yield _video_file(machine, f"/dev/{name}")


def _is_metadata(machine: Machine, name: str) -> bool:
    # A camera's second file has no pictures (https://github.com/qTox/qTox/issues/6058).
    return machine.text(f"{VIDEO_CLASS}/{name}/index") not in ("", "0")


def _video_file(machine: Machine, file: str) -> Check:
    name = file.removeprefix("/dev/")
    title = machine.text(f"{VIDEO_CLASS}/{name}/name")
    if not machine.files(file):
        files = ", ".join(machine.files("/dev/video*")) or "none"
        return Check(name, MISSING, f"there is no {file}; there are: {files}", "plug it in; v4l2-ctl --list-devices")
    if _is_metadata(machine, name):
        return Check(name, WRONG, f"{title}: its metadata, no pictures", "name the camera's first file")
    if RAW_RECEIVER.search(title):
        return Check(name, WRONG, f"{title}: raw pictures of a sensor", "--source 'gst:libcamerasrc ! ...'")
    return Check(name, OK, title or file) if machine.may_open(file) else access_check(name, file, "video")


def _gstreamer(machine: Machine, text: str) -> Iterator[Check]:
    """Check PyGObject, and that each element is installed."""
    tools = machine.program("gst-inspect-1.0")
    if not tools or not (machine.package("PyGObject") or machine.files(f"{SYSTEM_FOLDER}/gi")):
        finding = "PyGObject is missing" if tools else "there is no gst-inspect-1.0"
        yield Check("gstreamer", MISSING, finding, f"sudo apt install gstreamer1.0-tools {DEBIAN_PACKAGES}")
        return
    elements = dict.fromkeys(re.findall(r"(?:^|!)\s*([a-z]\w*)(?=\s|$)", text))
    for name in elements:
        # https://github.com/raspberrypi/libcamera/issues/41
        is_here = machine.run(f"gst-inspect-1.0 --exists {name}") is not None
        yield Check(name, OK, "is here") if is_here else problem_check(name, MISSING, missing_element(name))
    if "nvarguscamerasrc" in elements and (machine.run("systemctl is-active nvargus-daemon") or "").strip() != "active":
        yield Check("nvargus-daemon", WRONG, "it does not run", "sudo systemctl restart nvargus-daemon")


def _libcamera(machine: Machine) -> Iterator[Check]:
    program = next(filter(machine.program, LISTS), "")
    if not program:
        yield Check(
            "libcamera", MISSING, "there is no rpicam-hello", "sudo apt install rpicam-apps, or libcamera-tools"
        )
        return
    cameras = re.findall(r"^\s*\d+ ?: ?(.+?)(?: \(|$)", machine.run(f"{program} {LISTS[program]}") or "", re.MULTILINE)
    is_configured = re.search(r"(?m)^\s*(camera_auto_detect=1|dtoverlay=\w+)", machine.text(CONFIGURATION))
    if cameras:
        yield Check("libcamera", OK, "; ".join(cameras))
    elif machine.files(CONFIGURATION) and not is_configured:
        # https://github.com/raspberrypi/rpicam-apps/issues/208
        yield Check("libcamera", WRONG, "no camera", f"camera_auto_detect=1 in {CONFIGURATION}, then reboot")
    else:
        remedy = f"check the cable; dtoverlay=SENSOR in {CONFIGURATION}, then reboot"
        yield Check("libcamera", MISSING, "no camera", remedy)
    # https://github.com/raspberrypi/rpicam-apps/issues/815
    if heaps := [file for file in machine.files("/dev/dma_heap/*") if not machine.may_open(file)]:
        yield access_check("camera memory", ", ".join(heaps), "video")
