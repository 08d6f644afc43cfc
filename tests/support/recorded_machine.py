"""A machine of files and answers, made after public reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from pipeline.doctor.machine import Machine, package_version


@dataclass(frozen=True)
class Recorded:
    """Files below ``/``, answers of commands, versions of packages."""

    files: Mapping[str, str | bytes]
    commands: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin"})
    closed: tuple[str, ...] = ()
    """Files that the user may not open."""
    absent: str = ""
    """Why the runtimes find no device."""

    def change(
        self,
        files: Mapping[str, str | bytes | None] | None = None,
        commands: Mapping[str, str | None] | None = None,
        packages: Mapping[str, str | None] | None = None,
        variables: Mapping[str, str | None] | None = None,
        closed: tuple[str, ...] = (),
    ) -> Recorded:
        """Return it with some entries replaced, or taken away by None."""

        def merge(old: Mapping[str, Any], new: Mapping[str, Any] | None) -> dict[str, Any]:
            return {key: value for key, value in {**old, **(new or {})}.items() if value is not None}

        return replace(
            self,
            files=merge(self.files, files),
            commands=merge(self.commands, commands),
            packages=merge(self.packages, packages),
            variables=merge(self.variables, variables),
            closed=closed,
        )

    def machine(self, folder: Path) -> Machine:
        """Write the files below a folder, and return the machine."""
        for name, content in self.files.items():
            path = folder / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return Machine(
            root=folder,
            run=self.commands.get,
            package=lambda name: self.packages.get(name, ""),
            may_open=lambda name: name not in self.closed,
            why_absent=lambda _: self.absent,
            variables=self.variables,
        )


# Main identification registers of Arm's cores (Linux, arch/arm64/include/asm/cputype.h).
A53, A55, A72, A76, A78AE = 0x410FD034, 0x412FD050, 0x410FD083, 0x414FD0B1, 0x410FD421
CPU = "/sys/devices/system/cpu"


def _system(machine: str, cores: tuple[int, ...], governor: str, driver: str, release: str) -> Recorded:
    """Return what all machines have."""
    files: dict[str, str | bytes] = {
        f"{CPU}/online": f"0-{len(cores) - 1}\n",
        f"{CPU}/cpufreq/policy0/scaling_governor": f"{governor}\n",
        f"{CPU}/cpufreq/policy0/scaling_driver": f"{driver}\n",
        "/sys/class/thermal/thermal_zone0/temp": "48312\n",
        "/proc/sys/kernel/osrelease": f"{release}\n",
        "/proc/meminfo": "MemTotal:        8245384 kB\nMemFree:         5216384 kB\nMemAvailable:    6671252 kB\n",
        "/proc/mounts": "proc /proc proc rw,nosuid 0 0\n/dev/mmcblk0p2 / ext4 rw,noatime 0 0\n",
    }
    for number, register in enumerate(cores):
        if register:
            files[f"{CPU}/cpu{number}/regs/identification/midr_el1"] = f"0x{register:016x}\n"
    commands = {
        "uname -m": f"{machine}\n",
        "df -Pk /": "Filesystem 1024-blocks Used Available Capacity Mounted on\n"
        "/dev/mmcblk0p2 59998812 11462588 46040828 20% /\n",
        "date --iso-8601=minutes": "2026-11-28T10:15+01:00\n",
        "getconf PAGESIZE": "4096\n",
        "id -u": "1000\n",
    }
    required = [Requirement(text) for text in metadata.requires("soc-stages") or () if "extra ==" not in text]
    versions = {requirement.name: package_version(requirement.name) for requirement in required}
    return Recorded(files, commands, {"soc-stages": "0.1.0", **versions})


def _cells(number: int) -> bytes:
    return number.to_bytes(4, "big")


# https://github.com/costel78 in https://github.com/raspberrypi/rpicam-apps/issues/815 for the system and its camera.
PI_5 = _system("aarch64", (A76,) * 4, "ondemand", "cpufreq-dt", "6.12.25+rpt-rpi-2712").change(
    files={
        "/proc/device-tree/compatible": "raspberrypi,5-model-b\0brcm,bcm2712\0",
        # https://github.com/raspberrypi/linux/pull/6257
        "/proc/device-tree/chosen/power/max_current": _cells(5000),
        "/proc/device-tree/chosen/power/usb_max_current_enable": _cells(0),
        "/boot/firmware/config.txt": "# For more options\ncamera_auto_detect=1\ndtparam=audio=on\n",
        "/sys/class/video4linux/video0/name": "rp1-cfe-csi2_ch0\n",
        "/sys/class/video4linux/video0/index": "0\n",
        "/sys/class/video4linux/video20/name": "pispbe-input\n",
        "/dev/video0": "",
        "/dev/video20": "",
        "/dev/dma_heap/linux,cma": "",
        "/usr/bin/rpicam-hello": "",
        "/usr/bin/gst-inspect-1.0": "",
        "/usr/lib/python3/dist-packages/gi/__init__.py": "",
    },
    commands={
        "vcgencmd get_throttled": "throttled=0x0\n",
        # https://github.com/guysoft/OctoPi/issues/825
        "rpicam-hello --list-cameras": "Available cameras\n-----------------\n"
        "0 : imx708 [4608x2592 10-bit RGGB] (/base/soc/i2c0mux/i2c@1/imx708@1a)\n"
        "    Modes: 'SRGGB10_CSI2P' : 1536x864 [120.13 fps - (768, 432)/3072x1728 crop]\n",
        **{f"gst-inspect-1.0 --exists {name}": "" for name in ("libcamerasrc", "videoconvert")},
    },
    packages={"av": "15.1.0"},
)

# Numbers and versions: https://github.com/geerlingguy/raspberry-pi-pcie-devices/issues/164,
# https://github.com/DeGirum/hailo_examples/issues/9; the answer: https://github.com/blakeblackshear/frigate/issues/22202.
IDENTITY = """Executing on device: 0001:01:00.0
Identifying board
Control Protocol Version: 2
Firmware Version: 4.20.0 (release,app,extended context switch buffer)
Logger Version: 0
Board Name: Hailo-8
Device Architecture: HAILO8
"""
PI_5_HAILO = PI_5.change(
    files={
        "/sys/bus/pci/devices/0001:01:00.0/vendor": "0x1e60\n",
        "/sys/bus/pci/devices/0001:01:00.0/device": "0x2864\n",
        "/dev/hailo0": "",
        "/sys/module/hailo_pci/version": "4.20.0\n",
        "/usr/lib/libhailort.so": "",
        "/usr/lib/libhailort.so.4.20.0": "",
        "/lib/firmware/hailo/hailo8_fw.bin": "",
    },
    commands={"hailortcli fw-control identify": IDENTITY},
)

# At USB: https://github.com/google-coral/pycoral/issues/72
USB = "/sys/bus/usb/devices/4-1"
PI_5_CORAL = PI_5.change(
    files={
        f"{USB}/idVendor": "18d1\n",
        f"{USB}/idProduct": "9302\n",
        f"{USB}/speed": "5000\n",
        "/usr/lib/aarch64-linux-gnu/libedgetpu.so.1": "",
        "/usr/lib/aarch64-linux-gnu/libedgetpu.so.1.0": "",
    }
)
# At PCI Express: https://github.com/google-coral/edgetpu/issues/846
PI_5_CORAL_PCI = PI_5_CORAL.change(
    files={
        f"{USB}/idVendor": None,
        "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x1ac1\n",
        "/sys/bus/pci/devices/0000:01:00.0/device": "0x089a\n",
        "/dev/apex_0": "",
    }
)

# Kernel and driver: https://github.com/radxa-build/rock-5b/issues/29; the library's text:
# https://github.com/airockchip/rknn-toolkit2/issues/405; nodes: https://github.com/airockchip/rknn-toolkit2/issues/534.
RK3588 = _system("aarch64", (A55,) * 4 + (A76,) * 4, "ondemand", "cpufreq-dt", "6.1.84-vendor-rk35xx").change(
    files={
        "/proc/device-tree/compatible": "radxa,rock-5b\0rockchip,rk3588\0",
        "/dev/dri/by-path/platform-fdab0000.npu-render": "",
        "/sys/class/devfreq/fdab0000.npu/governor": "rknpu_ondemand\n",
        "/sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.8\n",
        "/usr/lib/librknnrt.so": b"\x7fELF\0librknnrt version: 2.3.2 (429f97ae6b@2025-04-09T09:09:27)\0\xff",
    },
    packages={"rknn-toolkit-lite2": "2.3.2", "av": "15.1.0"},
)

# https://github.com/invisiofficial/rk-llama.cpp/issues/23
RK3588_ROCKET = _system("aarch64", (A55,) * 4 + (A76,) * 4, "schedutil", "cpufreq-dt", "6.18.3-edge-rockchip64").change(
    files={
        "/proc/device-tree/compatible": "radxa,rock-5b\0rockchip,rk3588\0",
        "/dev/accel/accel0": "",
        "/usr/lib/aarch64-linux-gnu/libteflon.so": "",
    }
)

# https://github.com/AbuAyah110/jetbot-orin-super/issues/1 for release and mode,
# https://github.com/roboflow/inference/pull/2306 for the libraries.
ORIN_NANO = _system("aarch64", (A78AE,) * 6, "schedutil", "tegra194-cpufreq", "5.15.148-tegra").change(
    files={
        "/proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005-super\0nvidia,p3767-0005\0nvidia,tegra234\0",
        "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 41062509, BOARD: generic, EABI: aarch64\n",
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release\n",
        "/dev/nvmap": "",
        "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1": "",
        "/usr/local/cuda/lib64/libcudart.so.12.6.68": "",
        "/usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0": "",
        "/usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so": "",
    },
    commands={
        "nvpmodel -q": "NV Power Mode: 15W\n0\n",
        "dpkg-query -W libnvinfer[0-9]*": "libnvinfer10\t10.3.0.30-1+cuda12.5\n",
    },
    packages={"onnxruntime-gpu": "1.23.0"},
)

# https://github.com/Xilinx/PYNQ/issues/1651
ULTRA96 = _system("aarch64", (A53,) * 4, "userspace", "cpufreq-dt", "6.12.40-xilinx").change(
    files={
        "/proc/device-tree/compatible": "avnet,ultra96-rev1\0avnet,ultra96\0xlnx,zynqmp\0",
        "/sys/class/fpga_manager/fpga0/firmware": "",
        "/sys/class/fpga_manager/fpga0/state": "operating\n",
    },
    commands={"id -u": "0\n"},
    packages={"pynq": "3.0.1"},
    variables={"XILINX_XRT": "/usr"},
)

# Two files of one camera: https://github.com/uglyDwarf/linuxtrack/issues/147; intel_pstate's 'powersave' is not slow.
LAPTOP = _system("x86_64", (0,) * 8, "powersave", "intel_pstate", "6.8.0-45-generic").change(
    files={
        "/sys/class/video4linux/video0/name": "Integrated Camera: Integrated C\n",
        "/sys/class/video4linux/video0/index": "0\n",
        "/sys/class/video4linux/video1/name": "Integrated Camera: Integrated C\n",
        "/sys/class/video4linux/video1/index": "1\n",
        "/dev/video0": "",
        "/dev/video1": "",
    },
    packages={"av": "15.1.0"},
)

# https://github.com/intel/linux-npu-driver/issues/99
NUC = _system("x86_64", (0,) * 22, "powersave", "intel_pstate", "6.11.0-25-generic").change(
    files={
        "/dev/accel/accel0": "",
        "/dev/dri/renderD128": "",
        "/usr/lib/x86_64-linux-gnu/libze_intel_npu.so.1.17.0": "",
        "/usr/lib/x86_64-linux-gnu/libze_loader.so.1.21.9": "",
    }
)

# https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/4
NVIDIA_PC = LAPTOP.change(
    files={
        "/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 2024\n",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.1": "",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07": "",
    }
)
