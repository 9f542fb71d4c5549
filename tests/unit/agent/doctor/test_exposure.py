"""Where any container may name GPUs, the node says so."""

import pytest

from agent.doctor.exposure import DEFAULT, exposure
from agent.doctor.facts import Runtime, ToolkitConfig

NVIDIA = Runtime(path="/c", runtimes=frozenset(("runc", "nvidia")), default="nvidia")
CLASS = Runtime(path="/c", runtimes=frozenset(("runc", "nvidia")))
NONE = Runtime(path="/c", runtimes=frozenset(("runc",)))
BROKEN = Runtime(path="/c", problem="it is not TOML")
YES, NO = ToolkitConfig(path="/t"), ToolkitConfig(path="/t", accepts=False)
LINK = ToolkitConfig(path="/t", problem="it is a link")


@pytest.mark.parametrize(
    ("runtimes", "configs", "begins"),
    [
        pytest.param((NVIDIA,), (YES,), "/t: any container may name GPUs", id="believed"),
        pytest.param((NVIDIA,), (), f"{DEFAULT}: any container", id="by-default"),
        pytest.param((NVIDIA,), (LINK,), "/t (it is a link): any container", id="unreadable"),
        pytest.param((NVIDIA,), (NO, YES), "/t: any", id="one-of-two"),
        pytest.param((NONE, NVIDIA), (YES,), "/t: any", id="the-second-runtime"),
        pytest.param((NVIDIA,), (NO,), "", id="ignored"),
        pytest.param((CLASS,), (YES,), "", id="by-class"),
        pytest.param((CLASS,), (LINK,), "", id="by-class-unreadable"),
        pytest.param((NONE,), (YES,), "", id="no-runtime"),
        pytest.param((BROKEN,), (), "", id="broken"),
        pytest.param((), (YES,), "", id="unknown"),
    ],
)
def test_the_default_runtime_and_the_toolkit_decide(
    runtimes: tuple[Runtime, ...], configs: tuple[ToolkitConfig, ...], begins: str
) -> None:
    """Both must agree that a container may."""
    found = exposure(runtimes, configs)

    assert found.startswith(begins)
    assert bool(found) is bool(begins)
