"""containerd's configuration is read in both its versions, with what it imports."""

import tomllib

import pytest

from agent.doctor.container_runtime import imports_of, runtime_of
from agent.doctor.facts import Runtime

SECOND = """
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = true
  cdi_spec_dirs = ["/var/run/cdi"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""
THIRD = """
version = 3
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
DROPPED_IN = """
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["/opt/cdi"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


def read_runtime(*texts: str, major: int | None = None) -> Runtime:
    runtime = runtime_of("/etc/x", [tomllib.loads(text) for text in texts], major=major)
    assert runtime is not None
    return runtime


def test_a_configuration_of_containerd_1() -> None:
    """Its CRI plugin says all."""
    document = tomllib.loads(SECOND)

    runtime = read_runtime(SECOND)

    assert runtime.runtimes == {"nvidia"}
    assert (runtime.default, runtime.cdi, runtime.cdi_folders) == (
        "nvidia",
        True,
        ("/var/run/cdi",),
    )
    assert imports_of(document) == ("/etc/containerd/conf.d/*.toml",)


def test_a_configuration_of_containerd_2_with_a_file_dropped_in() -> None:
    """Tables of both files are one, and CDI is on without being named."""
    runtime = read_runtime(THIRD, DROPPED_IN)

    assert runtime.runtimes == {"runc", "nvidia"}
    assert (runtime.default, runtime.cdi, runtime.cdi_folders) == ("runc", True, ("/opt/cdi",))


@pytest.mark.parametrize(
    "text",
    ["", "version = 2", "plugins = 3", 'imports = "x"', "[plugins]\n'io.containerd.grpc.v1.cri'=1"],
)
def test_what_is_missing_or_malformed_counts_as_absent(text: str) -> None:
    """The folders of CDI are containerd's own then, and whether it reads them depends on it."""
    document = tomllib.loads(text)

    runtime = read_runtime(text)

    assert imports_of(document) == ()
    assert (runtime.runtimes, runtime.default, runtime.cdi) == (frozenset(), "runc", None)
    assert runtime.cdi_folders == ("/etc/cdi", "/var/run/cdi")


OLD_OFF = """
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  enable_cdi = false
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
OLD_DROPPED_IN = """
version = 2
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
"""


@pytest.mark.parametrize(
    ("major", "cdi", "runtimes"),
    [
        pytest.param(1, None, {"nvidia"}, id="whole-sections"),
        pytest.param(None, None, {"nvidia"}, id="not-known"),
        pytest.param(2, False, {"runc", "nvidia"}, id="key-by-key"),
    ],
)
def test_what_is_dropped_in_is_merged_as_that_containerd_does(
    major: int | None, *, cdi: bool | None, runtimes: set[str]
) -> None:
    """The first loses what its own file says of a plugin that an imported one speaks of."""
    runtime = read_runtime(OLD_OFF, OLD_DROPPED_IN, major=major)

    assert (runtime.cdi, set(runtime.runtimes)) == (cdi, runtimes)


@pytest.mark.parametrize(
    "name", ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"]
)
def test_one_that_serves_no_kubelet_is_none(name: str) -> None:
    """As docker's package leaves it on nodes that run another containerd."""
    document = tomllib.loads(f'disabled_plugins = ["{name}"]')

    assert runtime_of("/etc/x", [tomllib.loads(THIRD), document]) is None


def test_the_oldest_names_are_known() -> None:
    """Configurations without a version call the plugin by its short name."""
    assert read_runtime("[plugins.cri]\nenable_cdi = true").cdi is True
