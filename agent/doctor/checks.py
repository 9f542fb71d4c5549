"""The doctor: checks of the facts about a node, each with a finding and a remedy.

Every check is a function of the facts. `vgpu doctor` prints the findings in the order of CHECKS;
docs/doctor.md explains each check by its name.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agent.doctor.exposure import effective_configs, exposure
from agent.doctor.facts import ACCEPTS, NodeFacts
from agent.region.layout import TESTED
from allocator.model.untrusted import inert
from allocator.report.terminal_lines import WIDTH

Version = tuple[int, ...]
DRIVER_FLOOR: Final = "470.42"  # MIG instances by UUID
SEVERAL_INSTANCES: Final = "570"  # before, a process sees only the first of its MIG instances
TOOLKIT_FLOOR: Final = "1.17.8"  # up to 1.17.7 an image takes over the node (CVE-2025-23266)
# The agent hands out GPUs by the same variable, so the toolkit cannot be told to ignore it.
_HIDING_REMEDY: Final = (
    "set default_runtime_name = runc in containerd's configuration, restart containerd, and use a "
    f"RuntimeClass; label each namespace that may use it. Keep {ACCEPTS} = true"
)
LEVEL_WIDTH: Final = 6  # columns of the level in a table


class Level(StrEnum):
    """How bad it is; the value is what is printed."""

    OK = "ok"
    WARN = "warn"  # works with restrictions, or could not be checked
    FAIL = "fail"  # pods cannot start, or their limits are not enforced


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorFinding:
    """One result of a check; ``remedy`` says how to fix it and is empty for level ok."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def findings(facts: NodeFacts) -> tuple[DoctorFinding, ...]:
    """Return the findings of all checks, in their order."""
    return tuple(
        DoctorFinding(check=name, level=answer.level, text=answer.text, remedy=answer.remedy)
        for name, check in CHECKS.items()
        for answer in check(facts)
    )


def has_failure(doctor_findings: Sequence[DoctorFinding]) -> bool:
    """Say whether any of them is a failure."""
    return any(finding.level is Level.FAIL for finding in doctor_findings)


def render(doctor_findings: Sequence[DoctorFinding]) -> str:
    """Return the findings as a table of at most WIDTH columns."""
    names = max((len(finding.check) for finding in doctor_findings), default=0)
    indent = " " * (LEVEL_WIDTH + names + 2)
    lines = []
    for finding in doctor_findings:
        head = f"{finding.level.value:<{LEVEL_WIDTH}}{finding.check:<{names}}  "
        for text in filter(None, (finding.text, finding.remedy)):
            lines += textwrap.wrap(
                inert(text),
                WIDTH,
                initial_indent=head,
                subsequent_indent=indent,
                break_on_hyphens=False,
            )
            head = indent
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class _Answer:
    level: Level
    text: str
    remedy: str = ""


_Answers = Iterator[_Answer]


def _driver(facts: NodeFacts) -> _Answers:
    versions = facts.versions
    if facts.driver_error is not None or versions is None:
        why = facts.driver_error or "it did not report its version"
        remedy = "get nvidia-smi to work on the node first"
        yield _Answer(Level.FAIL, f"the driver does not answer: {why}", remedy)
        return
    version_text = f"{versions.driver}, CUDA {versions.cuda}"
    if is_older(versions.driver, DRIVER_FLOOR):
        text = (
            f"{version_text}: before {DRIVER_FLOOR} containers cannot select MIG instances by UUID"
        )
        yield _Answer(Level.FAIL, text, f"install driver {DRIVER_FLOOR} or later")
    elif _any_in_mig_mode(facts) and is_older(versions.driver, SEVERAL_INSTANCES):
        text = f"{version_text}: before R{SEVERAL_INSTANCES} a process sees only one MIG instance"
        yield _Answer(Level.WARN, text, "give each container one instance, or update the driver")
    else:
        yield _Answer(Level.OK, version_text)


def _gpus(facts: NodeFacts) -> _Answers:
    if facts.driver_error is not None:
        return
    if not facts.devices:
        text = "the driver lists no readable GPU"
        yield _Answer(Level.FAIL, text, "check dmesg for NVRM messages and lspci for the device")
        return
    models = sorted({device.model for device in facts.devices})
    counts = (sum(device.model == model for device in facts.devices) for model in models)
    text = ", ".join(f"{count} x {model}" for count, model in zip(counts, models, strict=True))
    yield _Answer(Level.OK, text)


def _mig(facts: NodeFacts) -> _Answers:
    for device in facts.devices:
        mode = device.mig
        if mode is None:
            continue
        if mode.current != mode.pending:
            state = "on" if mode.pending else "off"
            text = f"GPU {device.index}: MIG mode will be {state} after the GPU's next reset"
            reset = f"nvidia-smi --gpu-reset -i {device.index}"
            yield _Answer(
                Level.FAIL, text, f"stop its processes and run {reset}, or reboot the node"
            )
        elif mode.current and device.board is None:
            text = f"GPU {device.index}: in MIG mode, but its placements cannot be read"
            remedy = "run the agent as root with NVIDIA_MIG_CONFIG_DEVICES=all"
            yield _Answer(Level.FAIL, text, remedy)
        else:
            profiles = len(device.board.profiles) if device.board else 0
            on = f"on, {profiles} profiles" if mode.current else "off"
            yield _Answer(Level.OK, f"GPU {device.index}: MIG mode {on}")


def _files(facts: NodeFacts) -> _Answers:
    if not facts.devices:
        return
    needed = ["nvidiactl", "nvidia-uvm", *(f"nvidia{device.minor}" for device in facts.devices)]
    missing = [f"/dev/{name}" for name in needed if name not in facts.files]
    if missing:
        text = f"missing: {', '.join(missing)}"
        yield _Answer(Level.FAIL, text, "run nvidia-modprobe -u -c 0 on the node")
    elif _any_in_mig_mode(facts) and not facts.capabilities:
        text = "/proc/driver/nvidia-caps/mig-minors cannot be read: no device files for instances"
        yield _Answer(Level.FAIL, text, "run nvidia-modprobe -m as root, which loads the module")
    else:
        yield _Answer(Level.OK, f"{len(needed)} device files present")


def _toolkit(facts: NodeFacts) -> _Answers:
    if facts.toolkit is None:
        text = "no NVIDIA container toolkit found under --root"
        remedy = f"install {TOOLKIT_FLOOR} or later, or set --root to the root of the node"
        yield _Answer(Level.WARN, text, remedy)
    elif is_older(facts.toolkit, TOOLKIT_FLOOR):
        text = f"{facts.toolkit} is older than {TOOLKIT_FLOOR}: an image can take over the node"
        yield _Answer(Level.FAIL, text, f"update to {TOOLKIT_FLOOR} or later (CVE-2025-23266)")
    else:
        yield _Answer(Level.OK, facts.toolkit)


def _hiding(facts: NodeFacts) -> _Answers:
    installed = facts.toolkit is not None
    if text := exposure(facts.runtimes, facts.toolkit_configs):
        yield _Answer(Level.WARN, text, _HIDING_REMEDY)
        return
    for config in effective_configs(facts.runtimes, facts.toolkit_configs, installed=installed):
        if config.problem:
            text = f"{config.path}: {config.problem}; by default any container may name GPUs"
            yield _Answer(Level.WARN, text, f"make it a file that says {ACCEPTS} = true")
        elif not config.accepts:
            text = f"{config.path}: {ACCEPTS} = false, so containers get no GPU from the agent"
            yield _Answer(Level.FAIL, text, "set it to true, and restart the container runtime")
        else:
            text = f"{config.path}: only containers with the RuntimeClass nvidia may name GPUs"
            yield _Answer(Level.OK, text)


def _runtime(facts: NodeFacts) -> _Answers:
    if not facts.runtimes:
        text = "no containerd configuration found under --root"
        yield _Answer(Level.WARN, text, "set --root to the root of the node")
    for runtime in facts.runtimes:
        if runtime.problem:
            yield _Answer(Level.FAIL, f"{runtime.path}: {runtime.problem}", "fix the file")
        elif "nvidia" not in runtime.runtimes:
            text = f"{runtime.path} defines no runtime named nvidia"
            remedy = "run nvidia-ctk runtime configure --runtime=containerd and restart containerd"
            yield _Answer(Level.FAIL, text, remedy)
        else:
            default = ", which is the default" if runtime.default == "nvidia" else ""
            yield _Answer(Level.OK, f"{runtime.path} defines the runtime nvidia{default}")


def _cdi(facts: NodeFacts) -> _Answers:
    for runtime in facts.runtimes:
        if runtime.problem:
            continue
        if not runtime.cdi:
            off = "CDI is off" if runtime.cdi is False else "CDI is off by default in containerd 1"
            text = f"{runtime.path}: {off}; a pod's own variables override the injected ones"
            remedy = "set enable_cdi = true in the section of the CRI plugin, or use containerd 2"
            yield _Answer(Level.WARN, text, remedy)
        elif not runtime.finds_ours:
            folders = ", ".join(runtime.cdi_folders) or "nothing"
            text = f"{runtime.path}: cdi_spec_dirs lists {folders}, but not /var/run/cdi"
            yield _Answer(Level.FAIL, text, "add /var/run/cdi to cdi_spec_dirs")
        else:
            yield _Answer(Level.OK, f"on, reads {', '.join(runtime.cdi_folders)}")


def _plugins(facts: NodeFacts) -> _Answers:
    for plugin in facts.plugins:
        text = f"{plugin.name} ({plugin.trace})"
        if plugin.running:
            remedy = "remove the node from its DaemonSet: two plugins would give out one GPU twice"
            yield _Answer(Level.FAIL, f"{text} also serves this node's GPUs", remedy)
        else:
            remedy = "if the plugin is gone, remove the socket or restart kubelet"
            yield _Answer(Level.WARN, f"{text} left a socket behind", remedy)
    if not facts.plugins:
        yield _Answer(Level.OK, "no other plugin for NVIDIA GPUs")


def _kubelet(facts: NodeFacts) -> _Answers:
    sockets = (
        (facts.registration, "device-plugins/kubelet.sock", "device plugins cannot register"),
        (facts.podresources, "pod-resources/kubelet.sock", "the owner of a slot cannot be found"),
    )
    for exists, path, consequence in sockets:
        if not exists:
            remedy = "start kubelet, or set --kubelet-dir to its directory"
            yield _Answer(Level.FAIL, f"no socket {path}: {consequence}", remedy)
    if all(exists for exists, _, _ in sockets):
        yield _Answer(Level.OK, "both sockets present")


def _library(facts: NodeFacts) -> _Answers:
    library = facts.library
    needed = any(device.mig is None or not device.mig.current for device in facts.devices)
    if library is None:
        text = "no interception library: shares of a GPU cannot be limited"
        remedy = "use an agent image that includes libvgpu.so"
        yield _Answer(Level.FAIL if needed else Level.WARN, text, remedy)
    elif library.problem:
        text = f"libvgpu.so cannot limit shares of a GPU: {library.problem}"
        remedy = f"build the image with the library of HAMi {TESTED[-1]}, and restart the agent"
        yield _Answer(Level.FAIL if needed else Level.WARN, text, remedy)
    elif not library.preloaded:
        text = f"sha256 {library.sha256[:16]}, but ld.so.preload does not list it"
        yield _Answer(Level.FAIL, text, "restart the agent, which writes both")
    else:
        yield _Answer(Level.OK, f"sha256 {library.sha256[:16]}")


CHECKS: Final[dict[str, Callable[[NodeFacts], _Answers]]] = {
    "driver": _driver,
    "gpus": _gpus,
    "mig": _mig,
    "files": _files,
    "toolkit": _toolkit,
    "hiding": _hiding,
    "runtime": _runtime,
    "cdi": _cdi,
    "plugins": _plugins,
    "kubelet": _kubelet,
    "library": _library,
}


def version_of(text: str) -> Version:
    """Return the numbers a version begins with: ``1.17.8-1`` is 1, 17, 8."""
    match = re.match(r"\d+(?:\.\d+)*", text.strip(), re.ASCII)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def is_older(version: str, floor: str) -> bool:
    """Say whether *version* is before *floor*; one without a number is not."""
    numbers = version_of(version)
    return bool(numbers) and numbers < version_of(floor)


def _any_in_mig_mode(facts: NodeFacts) -> bool:
    return any(device.mig is not None and device.mig.current for device in facts.devices)
