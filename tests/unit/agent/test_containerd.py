"""containerd's configuration is read in both its versions, with what it imports."""

import tomllib

import pytest

from agent.core.containerd import imports_of, runtime_of

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


def test_a_configuration_of_containerd_1() -> None:
    """Its CRI plugin says all."""
    document = tomllib.loads(SECOND)

    found = runtime_of("/etc/x", [document])

    assert found.runtimes == {"nvidia"}
    assert (found.default, found.cdi, found.cdi_folders) == ("nvidia", True, ("/var/run/cdi",))
    assert imports_of(document) == ("/etc/containerd/conf.d/*.toml",)


def test_a_configuration_of_containerd_2_with_a_file_dropped_in() -> None:
    """Tables of both files are one, and CDI is on without being named."""
    found = runtime_of("/etc/x", [tomllib.loads(THIRD), tomllib.loads(DROPPED_IN)])

    assert found.runtimes == {"runc", "nvidia"}
    assert (found.default, found.cdi, found.cdi_folders) == ("runc", True, ("/opt/cdi",))


@pytest.mark.parametrize(
    "text",
    ["", "version = 2", "plugins = 3", 'imports = "x"', "[plugins]\n'io.containerd.grpc.v1.cri'=1"],
)
def test_what_is_missing_or_odd_is_not_there(text: str) -> None:
    """The folders of CDI are containerd's own then, and whether it reads them depends on it."""
    document = tomllib.loads(text)

    found = runtime_of("/etc/x", [document])

    assert imports_of(document) == ()
    assert (found.runtimes, found.default, found.cdi) == (frozenset(), "runc", None)
    assert found.cdi_folders == ("/etc/cdi", "/var/run/cdi")
