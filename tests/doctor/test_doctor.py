"""Doctor: seeded faults are named with their remedies, and sound machines have none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.doctor.check import Check
from pipeline.doctor.request import make_request
from pipeline.doctor.subjects import examine
from pipeline.errors import BundleError
from tests.support import compiled_files
from tests.support import recorded_machine as recorded
from tests.support.recorded_machine import Recorded

LIBCAMERA = "gst:libcamerasrc ! videoconvert"


def diagnose(machine: Recorded, folder: Path, name: str | None = None, *sources: str) -> list[Check]:
    """Return the checks of a recorded machine."""
    return examine(machine.machine(folder), make_request(name, sources))


# https://github.com/LuckfoxTECH/luckfox-pico/issues/328
OLD_RK3588 = recorded.RK3588.change(
    {
        "/sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.2\n",
        "/usr/lib/librknnrt.so": "librknnrt version: 1.6.0 (9a7b5d24c@2023-12-13T17:31:11)",
    },
    packages={"rknn-toolkit-lite2": "1.6.0"},
)
SOUND = {
    "raspberry-pi-5 with hailo-8": (recorded.PI_5_HAILO, "raspberry-pi-5-hailo8", LIBCAMERA),
    "raspberry-pi-5 with coral at usb": (recorded.PI_5_CORAL, "raspberry-pi-5-edge-tpu", "exec:rpicam-hello -o -"),
    "raspberry-pi-5 with coral at pci": (recorded.PI_5_CORAL_PCI, "raspberry-pi-5-edge-tpu"),
    "raspberry-pi-5 of the small hailo's files": (recorded.PI_5_HAILO, "raspberry-pi-5-hailo"),
    "rk3588 with rknpu 0.9.8": (recorded.RK3588, "rk3588", "rtsp://camera/path"),
    "rk3588 with the versions of 2023": (OLD_RK3588, "rk3588"),
    "rk3588 with rocket": (recorded.RK3588_ROCKET, "rk3588-rocket"),
    "jetson orin nano": (recorded.ORIN_NANO, "jetson-orin-nano"),
    "ultra96 with vta": (recorded.ULTRA96, "ultra96"),
    "laptop with a webcam": (recorded.LAPTOP, None, "camera:/dev/video0?size=640x480"),
    "nuc": (recorded.NUC, "nuc"),
    "pc with a gpu": (recorded.NVIDIA_PC, None),
}


@pytest.mark.parametrize("machine", SOUND.values(), ids=SOUND)
def test_a_sound_machine_has_no_fault(machine: Any, tmp_path: Path) -> None:
    recorded_machine, name, *sources = machine
    checks = diagnose(recorded_machine, tmp_path, name, *sources)
    assert [check for check in checks if check.state != "ok"] == []
    assert {"packages", "memory", "disk", "clock", "temperature"} <= {check.name for check in checks}


@pytest.mark.parametrize("machine", SOUND.values(), ids=SOUND)
def test_nothing_is_missed_where_no_board_is_named(machine: Any, tmp_path: Path) -> None:
    assert [check for check in diagnose(machine[0], tmp_path) if check.state != "ok"] == []


@dataclass(frozen=True)
class Fault:
    """A fault on a machine, and how it is named."""

    machine: Recorded
    board: str | None
    name: str
    state: str
    finding: str
    remedy: str
    sources: tuple[str, ...] = ()


HAILO, CORAL, RKNN, JETSON = recorded.PI_5_HAILO, recorded.PI_5_CORAL, recorded.RK3588, recorded.ORIN_NANO
PI, LAPTOP, PC = recorded.PI_5, recorded.LAPTOP, recorded.NVIDIA_PC
PI_BOARD, HAILO_BOARD, CORAL_BOARD = "raspberry-pi-5", "raspberry-pi-5-hailo8", "raspberry-pi-5-edge-tpu"
JETSON_BOARD, NPU, OLD = "jetson-orin-nano", "/dev/dri/by-path/platform-fdab0000.npu-render", "librknnrt version: "
CORES = "/sys/devices/system/cpu"
POWER = "/proc/device-tree/chosen/power"

FAULTS = [
    # https://github.com/hailo-ai/hailo-rpi5-examples/issues/98
    Fault(HAILO.change({"/usr/lib/libhailort.so.4.20.0": None, "/usr/lib/libhailort.so.4.19.0": ""}), HAILO_BOARD,
          "hailo driver", "wrong", "4.20.0, while libhailort is", "apt full-upgrade"),
    # https://github.com/hailo-ai/hailo-rpi5-examples/issues/142
    Fault(HAILO.change(commands={"hailortcli fw-control identify": recorded.IDENTITY.replace("4.20", "4.21")}),
          HAILO_BOARD, "hailo firmware", "wrong", "4.21.0, while libhailort is", "reboot"),
    # https://github.com/nerves-project/nerves_system_rpi5/pull/39
    Fault(HAILO.change({"/lib/firmware/hailo/hailo8_fw.bin": None}), HAILO_BOARD, "hailo firmware file", "missing",
          "/lib/firmware/hailo", "apt install hailo-all"),
    # https://github.com/blakeblackshear/frigate/issues/22202: a Hailo-8L, and files for a Hailo-8.
    Fault(HAILO.change(commands={"hailortcli fw-control identify": recorded.IDENTITY.replace("HAILO8", "HAILO8L")}),
          HAILO_BOARD, "compiled for", "wrong", "hailo8, this is hailo8l", "compile"),
    Fault(PI, HAILO_BOARD, "hailo", "missing", "1e60", "pciex1"),
    Fault(HAILO.change({"/sys/module/hailo_pci/version": None}), HAILO_BOARD, "hailo driver", "missing",
          "hailo*_pci", ""),
    Fault(HAILO.change(closed=("/dev/hailo0",)), HAILO_BOARD, "hailo file", "wrong", "may not open",
          "usermod -aG video"),
    # https://github.com/LuckfoxTECH/luckfox-pico/issues/328
    Fault(RKNN.change({"/sys/kernel/debug/rknpu/version": "RKNPU driver: v0.9.2\n"}), "rk3588", "rknpu driver", "wrong",
          "0.9.2, less than 0.9.6", "newest system"),
    # The kernel's log tells it where debugfs is not mounted (https://github.com/istoreos/istoreos/issues/2897).
    Fault(RKNN.change({"/sys/kernel/debug/rknpu/version": None},
                      {"dmesg": "[ 18.1] [drm] Initialized rknpu 0.8.2 20220829 for fdab0000.npu on minor 1\n"}),
          "rk3588",
          "rknpu driver", "wrong", "0.8.2", "newest system"),
    # https://github.com/airockchip/rknn-toolkit2/issues/281
    Fault(RKNN.change({"/usr/lib/librknnrt.so": f"{OLD}1.4.0 (a10f100eb@2022-09-09T09:07:14)"},
                      packages={"rknn-toolkit-lite2": "2.3.0"}), "rk3588", "rknn-toolkit-lite2", "wrong",
          "2.3.0, while librknnrt is 1.4.0", "librknnrt"),
    Fault(RKNN.change({"/usr/lib/librknnrt.so": None}), "rk3588", "librknnrt", "missing", "librknnrt.so",
          "to /usr/lib"),
    # https://github.com/rockchip-linux/rknn-toolkit2/issues/244
    Fault(RKNN.change(closed=(NPU,)), "rk3588", "npu", "wrong", "may not open", "usermod -aG render,video"),
    # A mainline kernel: https://github.com/sbwml/builder/issues/93
    Fault(RKNN.change({NPU: None}), "rk3588", "npu", "missing", "npu-render", "rk3588-rocket"),
    Fault(RKNN.change({"/proc/device-tree/compatible": "radxa,zero3\0rockchip,rk3566\0"}), "rk3588", "compiled for",
          "wrong", "rk3588, this is rk3566", "compile"),
    # https://github.com/jaylfc/taOS/issues/361
    Fault(RKNN.change({"/sys/class/devfreq/fdab0000.npu/governor": "powersave"}), "rk3588", "npu governor", "wrong",
          "powersave", "devfreq"),
    # https://github.com/blakeblackshear/frigate/pull/21259
    Fault(recorded.RK3588_ROCKET.change({"/proc/sys/kernel/osrelease": "6.12.9-rockchip\n"}), "rk3588-rocket", "kernel",
          "wrong", "6.12.9, less than 6.18", "mainline"),
    Fault(recorded.RK3588_ROCKET.change({"/usr/lib/aarch64-linux-gnu/libteflon.so": None}), "rk3588-rocket",
          "libteflon",
          "missing", "libteflon", "Mesa"),
    # https://github.com/bluerobotics/companion/issues/58
    Fault(PI.change(commands={"vcgencmd get_throttled": "throttled=0x50005\n"}), PI_BOARD, "voltage", "wrong",
          "too low; too low since the start", "power supply"),
    # https://github.com/raspberrypi/linux/issues/2367
    Fault(PI.change(commands={"vcgencmd get_throttled": "throttled=0x80008\n"}), PI_BOARD, "throttling", "wrong",
          "limit of temperature", "fan"),
    Fault(PI.change({"/sys/class/hwmon/hwmon1/in0_lcrit_alarm": "1\n"}, {"vcgencmd get_throttled": None}), PI_BOARD,
          "voltage", "wrong", "too low", "power supply"),
    # https://github.com/dirkhh/adsb-feeder-image/issues/333
    Fault(PI.change({f"{POWER}/max_current": (3000).to_bytes(4, "big")}), PI_BOARD, "power supply", "wrong", "3000 mA",
          "5 A"),
    Fault(PI.change({"/sys/class/thermal/thermal_zone0/temp": "85200\n"}), PI_BOARD, "temperature", "wrong", "85 C",
          "fan"),
    Fault(PI.change({f"{CORES}/cpufreq/policy0/scaling_governor": "powersave\n"}), PI_BOARD, "governor", "wrong",
          "powersave", "echo performance"),
    Fault(PI.change({"/proc/meminfo": "MemTotal: 1018184 kB\nMemAvailable:  81252 kB\n"}), PI_BOARD, "memory", "wrong",
          "79 MiB, less than 192 MiB", "ps -eo"),
    # https://github.com/MichaIng/DietPi/issues/6613
    Fault(PI.change({"/proc/mounts": "/dev/sda2 / ext4 ro,noatime 0 0\n"}), PI_BOARD, "disk", "wrong", "read-only",
          "remount,rw"),
    Fault(PI.change(commands={"df -Pk /": "Filesystem ...\n/dev/root 29915568 29810112 105456 100% /\n"}), PI_BOARD,
          "disk", "wrong", "103 MiB", "apt-get clean"),
    # https://github.com/stupidpupil/https-keyscript/issues/14
    Fault(PI.change(commands={"date --iso-8601=minutes": "1970-01-01T00:01+00:00\n"}), PI_BOARD, "clock", "wrong",
          "1970", "set-ntp"),
    # https://github.com/raspberrypi/rpicam-apps/issues/208
    Fault(PI.change({"/boot/firmware/config.txt": "gpu_mem=128\n"},
                    {"rpicam-hello --list-cameras": "No cameras available!\n"}), PI_BOARD, "libcamera", "wrong",
          "no camera", "camera_auto_detect=1", (LIBCAMERA,)),
    Fault(PI.change(commands={"rpicam-hello --list-cameras": "No cameras available!\n"}), PI_BOARD, "libcamera",
          "missing", "no camera", "cable", (LIBCAMERA,)),
    # https://github.com/raspberrypi/libcamera/issues/41
    Fault(PI.change(commands={"gst-inspect-1.0 --exists libcamerasrc": None}), PI_BOARD, "libcamerasrc", "missing",
          "no element", "gstreamer1.0-libcamera", (LIBCAMERA,)),
    Fault(PI.change({"/usr/lib/python3/dist-packages/gi/__init__.py": None}), PI_BOARD, "gstreamer", "missing",
          "PyGObject", "python3-gi", (LIBCAMERA,)),
    # https://github.com/raspberrypi/rpicam-apps/issues/815
    Fault(PI.change(closed=("/dev/dma_heap/linux,cma",)), PI_BOARD, "camera memory", "wrong", "linux,cma", "video",
          (LIBCAMERA,)),
    Fault(PI, PI_BOARD, "video0", "wrong", "raw pictures", "libcamerasrc", ("camera:/dev/video0",)),
    Fault(PI, PI_BOARD, "rpicam-vid", "missing", "no such command", "apt-file", ("exec:rpicam-vid -o -?size=64x64",)),
    Fault(PI.change(packages={"av": None}), PI_BOARD, "av", "missing", "not installed", "av", ("rtsp://camera/path",)),
    # https://github.com/qTox/qTox/issues/6058
    Fault(LAPTOP, None, "video1", "wrong", "metadata", "first file", ("camera:/dev/video1",)),
    Fault(LAPTOP, None, "video4", "missing", "there are: /dev/video0, /dev/video1", "v4l2-ctl",
          ("camera:/dev/video4",)),
    Fault(LAPTOP.change(closed=("/dev/video0",)), None, "video0", "wrong", "may not open", "usermod -aG video"),
    # https://github.com/google-coral/edgetpu/issues/817
    Fault(recorded.PI_5_CORAL_PCI.change(commands={"getconf PAGESIZE": "16384\n"}), CORAL_BOARD, "page size", "wrong",
          "16384, more than 4096", "kernel8.img"),
    # https://github.com/google-coral/libedgetpu/issues/75
    Fault(recorded.PI_5_CORAL_PCI.change(closed=("/dev/apex_0",)), CORAL_BOARD, "edge tpu file", "wrong", "/dev/apex_0",
          "usermod -aG apex"),
    # https://github.com/google-coral/edgetpu/issues/556
    Fault(recorded.PI_5_CORAL_PCI.change({"/dev/apex_0": None}), CORAL_BOARD, "edge tpu file", "missing", "/dev/apex_",
          "gasket-dkms"),
    Fault(CORAL.change({f"{recorded.USB}/speed": "480\n"}), CORAL_BOARD, "edge tpu at usb", "wrong", "480 Mbit/s",
          "USB 3"),
    Fault(CORAL.change({f"{recorded.USB}/idVendor": None}), CORAL_BOARD, "edge tpu", "missing", "1a6e:089a", "plug"),
    Fault(CORAL.change({f"/usr/lib/aarch64-linux-gnu/libedgetpu.so.{n}": None for n in ("1", "1.0")}), CORAL_BOARD,
          "libedgetpu", "missing", "libedgetpu.so", "libedgetpu1-std"),
    # https://github.com/OE4T/meta-tegra/pull/1268
    Fault(JETSON.change(commands={"nvpmodel -q": "NV Power Mode: 7W_AI\n1\n"}), JETSON_BOARD, "power mode", "wrong",
          "7W_AI", "nvpmodel -m 0"),
    # https://github.com/ARK-Electronics/ark_jetson_kernel/pull/20
    Fault(JETSON, "jetson-orin-nano-super", "power mode", "wrong", "15W", "nvpmodel -m 2"),
    # https://github.com/NVIDIA/TensorRT/issues/2773; the package: https://github.com/NVIDIA/TensorRT/issues/1741
    Fault(JETSON.change(commands={"dpkg-query -W libnvinfer[0-9]*": "libnvinfer10\t10.3.0.30-1+cuda11.8\n"}),
          JETSON_BOARD, "tensorrt's cuda", "wrong", "11, while cuda is 12.6.68", "+cuda"),
    # https://github.com/roboflow/inference/pull/2306
    Fault(JETSON.change({"/usr/lib/aarch64-linux-gnu/nvidia/libnvdla_compiler.so": None}), JETSON_BOARD, "tensorrt dla",
          "missing", "libnvdla_compiler.so", "nvidia-l4t-dla-compiler"),
    Fault(JETSON.change({"/usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0": None}), JETSON_BOARD, "tensorrt", "missing",
          "libnvinfer.so", "nvidia-jetpack"),
    # https://github.com/microsoft/onnxruntime/issues/26996
    Fault(JETSON.change(packages={"onnxruntime": "1.23.2"}), JETSON_BOARD, "onnxruntime", "wrong",
          "beside that for GPUs",
          "pip uninstall"),
    Fault(JETSON.change(packages={"onnxruntime-gpu": None}), JETSON_BOARD, "onnxruntime-gpu", "missing",
          "onnxruntime-gpu",
          "JetPack"),
    # https://github.com/oddmario/NVIDIA-Ubuntu-Driver-Guide/issues/4
    Fault(PC.change({"/usr/lib/x86_64-linux-gnu/libcuda.so.550.90.07": None,
                     "/usr/lib/x86_64-linux-gnu/libcuda.so.550.107.02": ""}), None, "gpu driver library", "wrong",
          "550.107.02, while gpu driver is 550.90.07", "reboot"),
    # https://github.com/intel/linux-npu-driver/issues/74
    Fault(recorded.NUC.change(closed=("/dev/accel/accel0",)), "nuc", "npu", "wrong", "/dev/accel/accel0",
          "usermod -aG render"),
    # https://github.com/intel/linux-npu-driver/issues/99
    Fault(recorded.NUC.change({"/usr/lib/x86_64-linux-gnu/libze_intel_vpu.so.1": ""}), "nuc", "npu old runtime",
          "wrong",
          "old driver", "apt remove"),
    # https://github.com/Xilinx/PYNQ/issues/1651
    Fault(recorded.ULTRA96.change(variables={"XILINX_XRT": None}), "ultra96", "XILINX_XRT", "missing", "XILINX_XRT",
          "xrt_setup.sh"),
    # https://github.com/openquantumhardware/qick/issues/97
    Fault(recorded.ULTRA96.change(commands={"id -u": "1000\n"}), "ultra96", "user", "wrong", "root", "sudo -E"),
    # https://github.com/Xilinx/PYNQ-ComputerVision/issues/23
    Fault(recorded.ULTRA96.change({"/sys/class/fpga_manager/fpga0/firmware": None}), "ultra96", "fpga", "missing",
          "fpga0", "CONFIG_FPGA_MGR"),
    Fault(PI.change({f"{CORES}/cpu{n}/regs/identification/midr_el1": f"0x{recorded.A72:x}" for n in range(4)}),
          PI_BOARD,
          "processor", "wrong", "cortex-a72; raspberry-pi-5 has cortex-a76", "soc-pipeline boards"),
    Fault(LAPTOP, "rk3588", "processor", "wrong", "rk3588 is aarch64, this machine is x86_64", "soc-pipeline boards"),
    Fault(PI.change({f"{CORES}/online": "0-1,3\n"}), PI_BOARD, "cores", "wrong", "cores 2 are offline", "cpu2/online"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.board} {fault.name} {fault.state}")
def test_a_fault_is_named_with_its_remedy(fault: Fault, tmp_path: Path) -> None:
    checks = {check.name: check for check in diagnose(fault.machine, tmp_path, fault.board, *fault.sources)}
    check = checks[fault.name]
    assert (check.state, check.is_fault) == (fault.state, True)
    assert fault.finding in check.finding
    assert fault.remedy in check.remedy


def test_a_runtime_s_own_answer_is_shown(tmp_path: Path) -> None:
    machine = replace(recorded.RK3588, absent="LiteRT is missing; run: pip install x")
    checks = {check.name: check for check in diagnose(machine, tmp_path, "rk3588")}
    assert [checks[f"device npu{number}"].state for number in range(3)] == ["missing"] * 3
    assert checks["device npu0"].remedy == "pip install x"


def test_what_only_root_may_read_is_unknown_and_no_fault(tmp_path: Path) -> None:
    machine = recorded.RK3588.change({"/sys/kernel/debug/rknpu/version": None})
    check = next(check for check in diagnose(machine, tmp_path, "rk3588") if check.name == "rknpu driver")
    assert (check.state, check.is_fault) == ("unknown", False)
    assert "sudo cat /sys/kernel/debug/rknpu/version" in check.remedy


def compiled_bundle(model: tuple[Callable[[Path], Path], str], folder: Path) -> str:
    """Return a bundle of a compiled file, for a board that does not say its chip."""
    write, loader = model
    npu = Device("npu", "vendor", target={"kind": "vendor", "loader": loader})
    graph = pipeline.read(write(folder / "model.bin"))
    plan = pipeline.plan(graph, Board("b", (Device("cpu", cores=(0,)), npu)))
    pipeline.build(graph, plan).save(folder / "model.bundle")
    return str(folder / "model.bundle")


# https://github.com/rockchip-linux/rknpu2/issues/25
RK3566 = (lambda path: compiled_files.rknn(path, "rk3566"), "rknn")
# https://github.com/kyrikakis/hailo_tappas_ros2/issues/25, https://github.com/raspberrypi/rpicam-apps/pull/754
HAILO8 = (lambda path: compiled_files.hef(path, 0), "hailo")
HAILO8L = (lambda path: compiled_files.hef(path, 3), "hailo")
# https://github.com/RootKit-Org/AI-Aimbot/issues/109
ENGINE = (lambda path: compiled_files.engine(path, (8, 5, 1, 7)), "tensorrt")
SMALL_HAILO = HAILO.change(commands={"hailortcli fw-control identify": recorded.IDENTITY.replace("HAILO8", "HAILO8L")})


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (RK3566, Fault(RKNN, None, "compiled for", "wrong", "rk3566, this is rk3588", "compile")),
        (HAILO8, Fault(SMALL_HAILO, None, "compiled for", "wrong", "hailo8, this is hailo8l", "compile")),
        (ENGINE, Fault(JETSON, None, "tensorrt", "wrong", "10.3.0, while the engine's version is 8.5.1.7", "trtexec")),
        # https://github.com/ggml-org/whisper.cpp/issues/395
        (
            RK3566,
            Fault(
                RKNN.change({"/proc/meminfo": "MemAvailable: 512 kB\n"}), None, "bundle's memory", "wrong",
                "1 MiB at least, of 0 MiB", "quantise",
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Fault) else "",
)  # fmt: skip
def test_a_bundle_s_files_are_compared_with_the_machine(model: Any, fault: Fault, tmp_path: Path) -> None:
    name = compiled_bundle(model, tmp_path)
    check = {check.name: check for check in diagnose(fault.machine, tmp_path / "root", name)}[fault.name]
    assert (check.state, fault.finding in check.finding, fault.remedy in check.remedy) == (fault.state, True, True)


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ((lambda path: compiled_files.rknn(path, "rk3588"), "rknn"), RKNN),
        (HAILO8, HAILO),
        (HAILO8L, HAILO),
        (HAILO8L, SMALL_HAILO),
        ((compiled_files.engine, "tensorrt"), JETSON),
    ],
)
def test_files_for_the_machine_s_chip_are_no_fault(model: Any, machine: Recorded, tmp_path: Path) -> None:
    checks = diagnose(machine, tmp_path / "root", compiled_bundle(model, tmp_path))
    # The stages around it were built for this processor.
    faults = [check for check in checks if check.is_fault and check.name != "processor"]
    assert faults == []
    if (model, machine) == (HAILO8L, HAILO):
        assert "HAILO8, which runs files for hailo8l" in {check.finding for check in checks}


def test_a_damaged_file_of_a_bundle_is_named(tmp_path: Path) -> None:
    folder = Path(compiled_bundle(RK3566, tmp_path))
    (file,) = folder.glob("*.artifact")
    file.write_bytes(file.read_bytes()[:80])
    with pytest.raises(BundleError, match=r"is damaged: .* copy or build it again"):
        make_request(str(folder))
