"""The version that the programs say they have."""

import tomllib
from pathlib import Path

from kube.client import user_agent, version

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_a_checkout_has_the_version_of_its_project_file() -> None:
    """Nothing is installed here, and nothing in the image either."""
    project = tomllib.loads(PROJECT.read_text())["project"]

    assert version() == project["version"]
    assert user_agent() == f"vgpu-admission/{project['version']}"
