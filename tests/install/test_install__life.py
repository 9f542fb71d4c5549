"""One pod's whole life, readable afterwards though every component of ours was killed meanwhile.

It follows tests/install/test_install.py, which adds the console.
"""

import json
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from tests.cluster.api import Json, wait_for
from tests.install.node_processes import COMPONENTS, kill_components, leave_gpu, use_gpu
from tests.install.one_node import NODE, CommandError
from tests.install.person import TEAM, WITHIN, Person
from tests.install.test_install import (
    KUSTOMIZATION,
    RECEIVED_WITHIN,
    admits,
    entries,
    rows,
    running,
)

SYSTEM = ("-n", "vgpu-admission-system")
CONSOLE = "https://10.96.94.44:8444"  # the address of the Service in the kustomization
SPOOLED = 2.0  # seconds; what a component has recorded is in its spool after half a second
SOFT_GPUS = 4  # of the simulated fleet that are not in MIG mode
PROMISED = 8_000  # MiB
# What happens to the pod, in this order. The bind is refused while it waits, and then promised.
LIFE = (
    "admission refused",
    "admission rewritten",
    "waiting begun",
    "bind promised",
    "allocated",
    "started",
    "violation",
    "evicted",
    "released",
)


def pod(someone: Person, name: str, *, number: int = 1, **amounts: int) -> Json:
    """Return a pod that asks for software slices."""
    manifest = someone.pod(name, **{"volcano.sh/vgpu-mode": "hami-core"})
    limits = {f"volcano.sh/vgpu-{what}": amount for what, amount in amounts.items()}
    manifest["spec"]["containers"][0]["resources"] = {
        "limits": {"volcano.sh/vgpu-number": number, **limits}
    }
    return manifest


def create(someone: Person, manifest: Json) -> None:
    """Create a pod; raises :class:`CommandError` where it is refused."""
    someone.cluster.kubectl("-n", TEAM, "create", "-f", "-", stdin=json.dumps(manifest))


def evict_violators(someone: Person) -> None:
    """Let agents evict: what docs/enforcement.md says, a component and a setting."""
    settings = {"data": {"settings.yaml": "enforcement: evict\n"}}
    patch = ("configmap", "vgpu-admission-settings", "--type=merge", f"-p={json.dumps(settings)}")
    someone.cluster.kubectl(*SYSTEM, "patch", *patch)


@dataclass(slots=True)
class Trail:
    """The records of one pod as the console shows them, none of which may ever be missing again."""

    someone: Person
    name: str
    known: dict[str, Json] = field(default_factory=dict)  # by their identifiers

    def look(self) -> bool:
        """Read the records, and say whether the console answered."""
        try:
            printed = self.someone.paste(
                f"kubectl vgpu records -n {TEAM} --pod {self.name} --limit 1000 -o json"
            )
        except CommandError:
            return False  # it was killed, and comes back
        found = {row["record"]["id"]: row["record"] for row in rows(printed)}
        assert self.known.keys() <= found.keys(), "a record that was shown once is missing"
        self.known = found
        return True

    def wait_for(self, *steps: str) -> None:
        """Return once all of *steps* are recorded."""
        try:
            wait_for(
                lambda: self.look() and set(steps) <= set(self.steps()),
                within=RECEIVED_WITHIN,
                every=1.0,
            )
        except TimeoutError:
            raise AssertionError(f"no {set(steps) - set(self.steps())} in {self.steps()}") from None

    def steps(self) -> list[str]:
        """Return what happened, the earliest first, each with what became of it."""
        records = sorted(self.known.values(), key=lambda record: record["at"])
        return list(map(step_of, records))


def step_of(record: Json) -> str:
    """Return what happened, with what became of it."""
    parts = (record["kind"], record.get("outcome") or record.get("state"))
    return " ".join(filter(None, parts))


def first_places(steps: list[str], wanted: Iterable[str]) -> list[int]:
    """Return where each of *wanted* happened first."""
    return [steps.index(step) for step in wanted]


@pytest.fixture
def evicting(someone: Person) -> None:
    """Give agents the right to evict; what happens to violations is still only reported."""
    file = someone.checkout / KUSTOMIZATION
    text = file.read_text()
    file.write_text(text.replace("\ncomponents:\n", "\ncomponents:\n- ../components/evict\n"))
    someone.paste("kubectl apply -k manifests/mine")


@pytest.mark.usefixtures("evicting")
def test_a_whole_life_is_readable_after_every_component_was_killed(someone: Person) -> None:
    """Asked, refused, admitted, waiting, bound, started, breached, evicted; nothing is lost."""
    host, trail = someone.cluster.host, Trail(someone, "life")

    with pytest.raises(CommandError, match="vgpu-cores"):
        create(someone, pod(someone, "life", memory=PROMISED, cores=130))
    trail.wait_for("admission refused")
    kill_components(host, "webhook")

    wait_for(lambda: admits(someone), within=RECEIVED_WITHIN)
    create(someone, pod(someone, "filler", number=SOFT_GPUS))  # whole ones
    runs(someone, "filler")
    create(someone, pod(someone, "life", memory=PROMISED))
    time.sleep(SPOOLED)
    kill_components(host, "console", "webhook")  # nobody but a spool has what was decided
    trail.wait_for("admission rewritten", "waiting begun")

    someone.cluster.kubectl("delete", "pod", "-n", TEAM, "filler")
    runs(someone, "life")
    trail.wait_for("bind promised", "waiting over", "allocated")
    kill_components(host, "relay", "agent")

    (entry,) = [each for each in entries(someone.cluster) if each["pod"]["name"] == "life"]
    use_gpu(host, entry, memory=1_000)
    trail.wait_for("started")
    use_gpu(host, entry, memory=2 * PROMISED)
    trail.wait_for("violation")
    before = running(someone, "life")
    kill_components(host, "agent")
    assert running(someone, "life") == before, "a setting decides whether it is evicted"

    evict_violators(someone)
    gone(someone, "life")
    (device,) = entry["containers"][0]["devices"]
    leave_gpu(host, device["gpu"])
    trail.wait_for("evicted", "released")
    kill_components(host, *COMPONENTS)

    trail.wait_for(*LIFE)
    steps = trail.steps()
    assert first_places(steps, LIFE) == sorted(first_places(steps, LIFE)), steps
    says_so(someone, trail)


def runs(someone: Person, name: str) -> None:
    """Return once a pod runs."""
    try:
        wait_for(lambda: someone.phase(name) == "Running", within=RECEIVED_WITHIN)
    except TimeoutError:
        raise AssertionError(someone.paste(f"kubectl vgpu why {name} -n {TEAM}")) from None


def gone(someone: Person, name: str) -> None:
    """Return once a pod is no more."""
    found = ("-n", TEAM, f"--field-selector=metadata.name={name}")
    wait_for(lambda: not someone.cluster.get("pods", *found)["items"], within=RECEIVED_WITHIN)


def says_so(someone: Person, trail: Trail) -> None:
    """Check what a person reads: the list, the decision and its page."""
    (uid,) = {one["pod_uid"] for one in trail.known.values() if one["kind"] == "evicted"}
    (digest,) = {
        one["digest"]
        for one in trail.known.values()
        if one["kind"] == "admission" and one.get("pod_uid") == uid
    }
    for step, state in (
        ("waiting begun", "WAITING"),
        ("violation", "RUNNING"),
        ("released", "ENDED"),
    ):
        at = next(one["at"] for one in trail.known.values() if step_of(one) == step)
        past = someone.paste(f"kubectl vgpu why life -n {TEAM} --at {at}")
        assert past.startswith(f"{state} "), past
        assert f"1 GPU with {PROMISED} MiB" in past, past
    printed = someone.paste(f"kubectl vgpu decisions {digest} -n {TEAM}")
    page = console_page(someone, f"/decisions/{digest}/{uid}")
    for text in (printed, page):
        for step in ("rewritten", NODE, "started", "violation", "evicted", "released"):
            assert step in text, text
        assert re.search(rf"uses {2 * PROMISED} of {PROMISED} MiB", text), text


def console_page(someone: Person, path: str) -> str:
    """Return a page of the console, read with the token of an account that may see the team."""
    kubectl = someone.cluster.kubectl
    kubectl("-n", TEAM, "create", "serviceaccount", "auditor")
    kubectl(
        "-n",
        TEAM,
        "create",
        "rolebinding",
        "auditor",
        "--clusterrole=view",
        f"--serviceaccount={TEAM}:auditor",
    )
    token = kubectl("-n", TEAM, "create", "token", "auditor").strip()
    asked = ("--kubeconfig=/dev/null", f"--server={CONSOLE}", "--insecure-skip-tls-verify")
    program = someone.cluster.programs["kubectl"]
    answered: list[str] = []

    def answers() -> bool:
        try:
            answered.append(
                someone.cluster.run(program, *asked, f"--token={token}", "get", f"--raw={path}")
            )
        except CommandError:
            return False
        return True

    wait_for(answers, within=WITHIN, every=1.0)
    return answered[-1]
