"""The manifests of the guides that users follow, applied as they stand."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster.api import Json
from tests.cluster.installation import Installation

GUIDES = Path(__file__).parents[1] / "guides"


def documents(name: str) -> list[Json]:
    """Return the documents of a guide's manifest."""
    found = yaml.safe_load_all((GUIDES / name).read_text())
    return [document for document in found if document]


def scheduler_configuration(name: str) -> str:
    """Return what a guide's ConfigMap tells vc-scheduler."""
    (document,) = documents(name)
    return str(document["data"]["volcano-scheduler.conf"])


@dataclass(frozen=True, slots=True)
class Reader:
    """A user who follows the guides on an installation, by kubectl."""

    kubectl: Path
    site: Installation

    def apply(self, what: str | list[Json], team: str = "") -> subprocess.CompletedProcess[str]:
        """Apply a guide's manifest by name, or documents; those without a namespace in *team*."""
        text = (GUIDES / what).read_text() if isinstance(what, str) else yaml.safe_dump_all(what)
        config, cache = self.site.plane.kubeconfig, self.site.plane.folder / "kubectl-cache"
        command = [str(self.kubectl), f"--kubeconfig={config}", f"--cache-dir={cache}"]
        if team:
            command.append(f"--namespace={team}")
        command += ["apply", "-f", "-"]
        return subprocess.run(
            command, capture_output=True, check=False, input=text, text=True, timeout=60
        )

    def create(self, what: str | list[Json], team: str = "") -> None:
        """Apply a manifest, of which the API server must take every object."""
        done = self.apply(what, team)
        assert done.returncode == 0, done.stderr
