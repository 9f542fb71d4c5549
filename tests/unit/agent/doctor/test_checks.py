"""The doctor's answers follow from facts; each failure says what would help."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.doctor.checks import (
    CHECKS,
    DoctorFinding,
    Level,
    findings,
    has_failure,
    is_older,
    render,
    version_of,
)
from agent.doctor.facts import ACCEPTS, Library, NodeFacts, Plugin, Runtime, ToolkitConfig
from agent.driver.driver import MigMode, Versions
from allocator.report.terminal_lines import WIDTH
from tests.builders.model import device

DOCS = Path(__file__).parents[4] / "docs"
ON, OFF = MigMode(current=True, pending=True), MigMode(current=False, pending=False)


LIBRARY = Library(sha256="9f2c4e01b7d3a655" + "0" * 48, problem="", preloaded=True)
WELL = NodeFacts(
    versions=Versions(driver="580.95.05", nvml="13.580.95.05", cuda="13.0"),
    devices=(device("NVIDIA A100-SXM4-40GB", mig=ON), device("NVIDIA L40S", index=1)),
    toolkit="1.18.1-1",
    runtimes=(
        Runtime(
            path="/etc/containerd/config.toml",
            runtimes=frozenset(("runc", "nvidia")),
            cdi=True,
            cdi_folders=("/etc/cdi", "/var/run/cdi"),
        ),
    ),
    toolkit_configs=(ToolkitConfig(path="/etc/nvidia-container-runtime/config.toml"),),
    registration=True,
    podresources=True,
    library=LIBRARY,
    files=frozenset(("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1")),
    capabilities=True,
)
(RUNTIME,) = WELL.runtimes
SICK = NodeFacts(
    versions=Versions(driver="535.54.03", nvml="12.535.54.03", cuda="12.2"),
    devices=(
        device("NVIDIA A100-SXM4-40GB", mig=MigMode(current=False, pending=True)),
        replace(device("NVIDIA A30", index=1, mig=ON), board=None),
    ),
    toolkit="1.17.4",
    runtimes=(
        replace(RUNTIME, runtimes=frozenset(("runc",)), cdi=None),
        Runtime(path="/etc/rancher/config.toml", problem="it is not TOML: line 3"),
    ),
    toolkit_configs=(
        ToolkitConfig(path="/etc/nvidia-container-runtime/config.toml", accepts=False),
        ToolkitConfig(path="/usr/local/nvidia/toolkit/config.toml", problem="it is a link"),
    ),
    plugins=(
        Plugin("Volcano's vGPU device plugin", "process 4711", running=True),
        Plugin("the gpushare device plugin", "socket aliyungpushare.sock", running=False),
    ),
    files=frozenset(("nvidiactl", "nvidia0", "nvidia1")),
)


@pytest.mark.parametrize(
    ("name", "facts"),
    [("well", WELL), ("sick", SICK), ("elsewhere", NodeFacts(driver_error="no library"))],
)
def test_a_report_reads_well(
    name: str, facts: NodeFacts, golden: Callable[[str, str], str]
) -> None:
    """The whole text, as reviewed; --update-golden writes it anew."""
    shown = render(findings(facts))

    assert shown == golden(f"doctor-{name}.txt", shown)


def test_a_node_that_is_well_passes_every_check() -> None:
    """No check is skipped where everything is there, and none fails."""
    doctor_findings = findings(WELL)

    assert {finding.check for finding in doctor_findings} == set(CHECKS)
    assert {finding.level for finding in doctor_findings} == {Level.OK}
    assert not has_failure(doctor_findings)


@pytest.mark.parametrize("facts", [SICK, NodeFacts(), NodeFacts(driver_error="it hangs")])
def test_what_is_not_well_says_what_would_help(facts: NodeFacts) -> None:
    """Every warning and failure has a remedy, and a failure makes the whole fail."""
    doctor_findings = findings(facts)

    assert has_failure(doctor_findings)
    assert all(bool(f.remedy) == (f.level is not Level.OK) for f in doctor_findings)


@pytest.mark.parametrize(
    ("change", "check", "level"),
    [
        pytest.param({"registration": False}, "kubelet", Level.FAIL, id="kubelet"),
        pytest.param({"toolkit": "1.17.7"}, "toolkit", Level.FAIL, id="toolkit too old"),
        pytest.param({"toolkit": "1.17.8"}, "toolkit", Level.OK, id="toolkit just right"),
        pytest.param({"toolkit": None}, "toolkit", Level.WARN, id="toolkit unseen"),
        pytest.param({"files": frozenset()}, "files", Level.FAIL, id="no device files"),
        pytest.param({"capabilities": False}, "files", Level.FAIL, id="no capabilities"),
        pytest.param({"library": None}, "library", Level.FAIL, id="no library"),
        pytest.param(
            {"library": replace(LIBRARY, problem="it is HAMi 2.8.1's")},
            "library",
            Level.FAIL,
            id="library of another release",
        ),
        pytest.param({"devices": ()}, "gpus", Level.FAIL, id="no GPU"),
        pytest.param({"runtimes": (replace(RUNTIME, cdi=False),)}, "cdi", Level.WARN, id="CDI off"),
        pytest.param(
            {"runtimes": (replace(RUNTIME, cdi_folders=("/etc/cdi",)),)},
            "cdi",
            Level.FAIL,
            id="CDI from elsewhere",
        ),
        pytest.param(
            {"runtimes": (replace(RUNTIME, default="nvidia"),)},
            "hiding",
            Level.WARN,
            id="everybody's runtime",
        ),
        *(
            pytest.param({"toolkit_configs": configs}, "hiding", level, id=f"toolkit {name}")
            for name, level, configs in (
                ("accepts by default", Level.OK, ()),
                ("ignores the variable", Level.FAIL, (ToolkitConfig(path="/a", accepts=False),)),
                ("cannot be read", Level.WARN, (ToolkitConfig(path="/a", problem="a link"),)),
            )
        ),
    ],
)
def test_one_change_is_seen_by_one_check(
    change: dict[str, object], check: str, level: Level
) -> None:
    """A fact is judged where a person looks for it."""
    doctor_findings = findings(replace(WELL, **change))  # type: ignore[arg-type]  # a row of a table

    assert {f.level for f in doctor_findings if f.check == check} == {level}
    assert all(f.level is Level.OK for f in doctor_findings if f.check != check)


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ((), Level.WARN),
        ((ToolkitConfig(path="/a"),), Level.WARN),
        ((ToolkitConfig(path="/a", accepts=False),), Level.FAIL),
    ],
)
def test_everybody_may_name_gpus(configs: tuple[ToolkitConfig, ...], level: Level) -> None:
    """Where NVIDIA's runtime starts each container and believes it, as it does by default."""
    facts = replace(WELL, runtimes=(replace(RUNTIME, default="nvidia"),), toolkit_configs=configs)

    (found,) = [each for each in findings(facts) if each.check == "hiding"]

    assert found.level is level
    assert f"{ACCEPTS} = true" in found.remedy or "set it to true" in found.remedy


def test_where_nvidia_has_no_runtime_nobody_may_name_gpus() -> None:
    """There is nothing to say then."""
    other = replace(RUNTIME, runtimes=frozenset(("runc",)))
    facts = replace(WELL, runtimes=(other,), toolkit=None, toolkit_configs=())

    assert not [each for each in findings(facts) if each.check == "hiding"]


def test_a_node_of_mig_only_needs_no_library() -> None:
    """Hardware limits its pods; the library is missed, and nothing fails."""
    (only, _) = WELL.devices

    doctor_findings = findings(replace(WELL, devices=(only,), library=None))

    assert not has_failure(doctor_findings)


@given(
    st.lists(
        st.builds(
            DoctorFinding,
            check=st.sampled_from(sorted(CHECKS)),
            level=st.sampled_from(list(Level)),
            text=st.text(min_size=1, max_size=300).filter(str.strip),
            remedy=st.text(max_size=300),
        )
    )
)
def test_no_text_breaks_the_table(doctor_findings: list[DoctorFinding]) -> None:
    """Whatever a file or driver says, lines are short and hold nothing a terminal would obey."""
    for line in render(doctor_findings).splitlines():
        assert len(line) <= WIDTH
        assert line.isprintable()


def test_versions_compare_as_numbers() -> None:
    """1.9 is older than 1.10, and a packager's suffix is no version."""
    assert version_of("1.9.0") < version_of("1.10.0-1")
    assert version_of("1.17.8-1") == version_of("1.17.8")
    assert is_older("1.9.0", "1.10")
    assert not is_older("simulated", "1.10")


def test_every_check_is_explained() -> None:
    """The page names each check as the command does."""
    page = (DOCS / "doctor.md").read_text()

    assert all(f"| `{check}` |" in page for check in CHECKS)
