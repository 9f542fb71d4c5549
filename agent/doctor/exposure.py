"""Whether any container of a node may name GPUs for itself, as its toolkit is configured."""

from collections.abc import Iterable
from typing import Final

from agent.doctor.facts import Runtime, ToolkitConfig

DEFAULT: Final = "the container toolkit, by default"


def effective_configs(
    runtimes: Iterable[Runtime], configs: tuple[ToolkitConfig, ...], *, installed: bool = False
) -> tuple[ToolkitConfig, ...]:
    """Return what holds on the node: NVIDIA's default where its runtime has no *configs*.

    *installed* says that the toolkit is there, whatever *runtimes* are defined.
    """
    present = installed or any("nvidia" in runtime.runtimes for runtime in runtimes)
    return configs if configs or not present else (ToolkitConfig(path=DEFAULT),)


def exposure(runtimes: tuple[Runtime, ...], configs: tuple[ToolkitConfig, ...]) -> str:
    """Return why any container of the node may see GPUs that nobody gave it; empty if none may.

    NVIDIA's runtime must start each container for that, and believe what the container says. A
    configuration that cannot be read counts as NVIDIA's default.
    """
    if not any(runtime.default == "nvidia" for runtime in runtimes):
        return ""
    for config in effective_configs(runtimes, configs):
        if config.accepts:
            doubt = f" ({config.problem})" if config.problem else ""
            return f"{config.path}{doubt}: any container may name GPUs in NVIDIA_VISIBLE_DEVICES"
    return ""
