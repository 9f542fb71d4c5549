"""A person with a checkout, kubectl and the README, who installs, uses and removes the product."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.process import ComponentError
from tests.install.image import ROOT
from tests.install.one_node import NODE, OneNode

_NOT_OF_A_CHECKOUT: Final = (".venv", ".git", ".*_cache", "__pycache__", ".hypothesis", "*.so")
_FENCE: Final = re.compile(r"(?ms)^( *)```(?:sh)?\n(.*?)^\1```$")


@dataclass(frozen=True, slots=True)
class Person:
    """Someone whose working directory is a checkout, at a terminal of the cluster's node."""

    cluster: OneNode
    checkout: Path
    environment: Path  # a virtual environment of Python

    def paste(self, commands: str) -> str:
        """Run commands as they stand in a page, and return what they print.

        Raises :class:`CommandError` where one fails. A page calls the node `gpu-1`.
        """
        printed = [self._run(line) for line in _lines(commands.replace("gpu-1", NODE))]
        return "".join(printed)

    def _run(self, line: str) -> str:
        if line.startswith("pip "):  # reaches the package index, which the node does not
            return self._install(line)
        kubectl = self.cluster.programs["kubectl"].parent
        path = f"PATH={self.environment / 'bin'}:{kubectl}:{os.environ['PATH']}"
        shell = f"cd {self.checkout} && {line}"
        kubeconfig = f"KUBECONFIG={self.cluster.kubeconfig}"
        return self.cluster.run("env", path, kubeconfig, "sh", "-ec", shell)

    def _install(self, line: str) -> str:
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
        return answer.stdout


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


def _lines(commands: str) -> list[str]:
    """Join continued lines: one command, one line."""
    return [line for line in re.sub(r"\\\n\s*", "", commands).splitlines() if line.strip()]
