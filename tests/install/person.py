"""A person with a checkout, kubectl and the README, who installs, uses and removes the product."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.cluster.api import Json, wait_for
from tests.cluster.process import ComponentError
from tests.install.image import ROOT
from tests.install.one_node import NODE, OneNode

TEAM: Final = "team-a"  # the README's namespace
WITHIN: Final = 180.0  # seconds for whatever the cluster has to do
_NOT_OF_A_CHECKOUT: Final = (".venv", ".git", ".*_cache", "__pycache__", ".hypothesis", "*.so")
_FENCE: Final = re.compile(r"(?ms)^( *)```(?:sh)?\n(.*?)^\1```$")


@dataclass(frozen=True, slots=True)
class Person:
    """Someone whose working directory is a checkout, at a terminal of the cluster's node."""

    cluster: OneNode
    checkout: Path
    environment: Path  # a virtual environment of Python

    def paste(self, commands: str, *, folder: str = ".") -> str:
        """Run commands of a page in a folder of the checkout, and return what they print.

        Raises :class:`CommandError` where one fails. A page calls the node `gpu-1`.
        """
        script = commands.replace("gpu-1", NODE)
        lines = script.splitlines()
        # What reaches the package index runs outside: the node has no way there.
        for line in lines:
            if line.startswith("pip "):
                self._install(line)
        rest = "\n".join(line for line in lines if not line.startswith("pip "))
        kubectl = self.cluster.programs["kubectl"].parent
        path = f"PATH={self.environment / 'bin'}:{kubectl}:{os.environ['PATH']}"
        kubeconfig = f"KUBECONFIG={self.cluster.kubeconfig}"
        inside = f"cd {self.checkout / folder}\n{rest}"
        return self.cluster.run("env", path, kubeconfig, "sh", "-euc", inside)

    def run(self, name: str, **annotations: str) -> None:
        """Create a pod as the README's under another name, and wait until it runs."""
        manifest = json.dumps(self.pod(name, **annotations))
        self.cluster.kubectl("-n", TEAM, "apply", "-f", "-", stdin=manifest)
        wait_for(lambda: self.phase(name) == "Running", within=WITHIN)

    def pod(self, name: str, **annotations: str) -> Json:
        """Return the README's pod under another name."""
        file = self.checkout / "manifests/example/pod.yaml"
        manifest: Json = yaml.safe_load(file.read_text())
        return manifest | {"metadata": {"name": name, "annotations": annotations}}

    def phase(self, name: str) -> str:
        """Return the phase of a pod."""
        return self.cluster.kubectl("get", "pod", "-n", TEAM, name, "-o=jsonpath={.status.phase}")

    def inside(self, name: str, *command: str) -> str:
        """Run a command in a pod's container and return what it prints."""
        return self.cluster.kubectl("exec", "-n", TEAM, name, "--", *command)

    def _install(self, line: str) -> None:
        if not self.environment.exists():
            subprocess.run([sys.executable, "-m", "venv", self.environment], check=True)
        command = f"{self.environment / 'bin' / line}"
        answer = subprocess.run(
            ["sh", "-c", f"{command} --quiet"],
            capture_output=True,
            check=False,
            cwd=self.checkout,
            text=True,
        )
        if answer.returncode:
            raise ComponentError(f"{line}: {answer.stderr[-2000:]}")


def person(cluster: OneNode, folder: Path) -> Person:
    """Return someone who has just cloned the repository into *folder*."""
    checkout = folder / "checkout"
    ignored = shutil.ignore_patterns(*_NOT_OF_A_CHECKOUT)
    shutil.copytree(ROOT, checkout, ignore=ignored)
    return Person(cluster, checkout, folder / "environment")


def blocks(page: str, heading: str) -> list[str]:
    """Return the commands below one heading of a page of the checkout, block by block."""
    text = (ROOT / page).read_text()
    level = heading.split(maxsplit=1)[0]
    found = re.search(rf"(?ms)^{re.escape(heading)}$\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text)
    assert found is not None, f"{page} has no heading {heading!r}"
    return [re.sub(rf"(?m)^{indent}", "", body) for indent, body in _FENCE.findall(found[1])]
