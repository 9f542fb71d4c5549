"""A cluster on which the base is installed, and requests in anybody's name."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import MERGE, Api, ApiError, Json, Reply, wait_for
from tests.cluster.control_plane import ControlPlane, Settings

MANIFESTS = Path(__file__).parents[2] / "manifests"


@dataclass(frozen=True, slots=True)
class Who:
    """A user, and the node that the user's token was issued for."""

    user: str
    node: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """The name, with every right, so that only a policy can say no."""
        node = {"Impersonate-Extra-Authentication.kubernetes.io%2fnode-name": self.node}
        return {
            "Impersonate-User": self.user,
            "Impersonate-Group": "system:masters",
            **(node if self.node else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster of a module's own, because registrations and policies concern all of it."""

    api: Api
    command: tuple[str, ...]

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [*self.command, *arguments]
        run = subprocess.run(command, capture_output=True, check=False, input=stdin, text=True)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def patch(self, who: Who, path: str, change: Json) -> Reply:
        """Try a change in somebody's name; nothing is stored, so that tests do not meet."""
        headers = {**who.headers, "Content-Type": MERGE}
        return self.api.request("PATCH", path, change, query={"dryRun": "All"}, headers=headers)

    def create(self, who: Who, path: str, body: Json) -> Reply:
        """Try to create an object in somebody's name; nothing is stored either."""
        return self.api.request("POST", path, body, query={"dryRun": "All"}, headers=who.headers)


@contextlib.contextmanager
def installed(programs: Mapping[str, Path], folder: Path) -> Iterator[Site]:
    """Start a cluster and apply the base; no pod of ours runs, so our webhook is down."""
    plane = ControlPlane(folder, programs, Settings(controllers=True))
    with plane, plane.api() as api:
        command = (str(programs["kubectl"]), f"--kubeconfig={plane.kubeconfig}")
        site = Site(api=api, command=command)
        site.kubectl("apply", "-k", str(MANIFESTS / "base"))
        forged = {"metadata": {"name": "probe"}, "spec": {"entries": []}}
        kind = {"apiVersion": "vgpu-admission.io/v1alpha1", "kind": "GPUNode"}
        nodes = "/apis/vgpu-admission.io/v1alpha1/gpunodes"
        wait_for(lambda: refusal(lambda: api.create(nodes, kind | forged, dryRun="All")))
        yield site


def refusal(request: Callable[[], Reply]) -> str:
    """Return the words of a refusal, or nothing if the request passed."""
    try:
        request()
    except ApiError as error:
        if error.status == 404:
            raise
        return error.message
    return ""
