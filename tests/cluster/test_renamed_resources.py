"""A site that renames a resource is told where the API server does not know the new name yet."""

from collections.abc import Mapping
from pathlib import Path

from allocator.controllers import hiding_policy
from tests.cluster.api import Json, wait_for
from tests.cluster.installation import installation
from tests.cluster.volcano_site import CONFIG_MAPS

EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GROUP = "/apis/admissionregistration.k8s.io/v1"
HOOKS = f"{GROUP}/mutatingwebhookconfigurations/vgpu-admission"
HIDING = f"{GROUP}/mutatingadmissionpolicies/{hiding_policy.NAME}"
KINDS = ("MutatingWebhookConfiguration", "ValidatingAdmissionPolicy")
TEXT = "nvidia:\n  resourceMemoryName: example.com/mem\n"
MENDED = "r == 'example.com/mem' || r.startsWith("


def test_a_name_that_no_condition_has_is_an_event(
    programs: Mapping[str, Path], tmp_path: Path
) -> None:
    """Read with the rights that the control plane has; what it says to write is a valid CEL."""
    with installation(programs, tmp_path) as site:

        def told() -> dict[str, str]:
            events: list[Json] = site.api.get(EVENTS)["items"]
            matching = [e for e in events if e["reason"] == "VgpuResourceNotMatched"]
            notes = {e["regarding"]["kind"]: e["note"] for e in matching}
            return notes if notes.keys() >= set(KINDS) else {}

        metadata = {"name": "volcano-vgpu-device-config"}
        site.api.create(CONFIG_MAPS, {"metadata": metadata, "data": {"device-config.yaml": TEXT}})
        found = wait_for(told, within=60)
        # The policy that the control plane publishes itself learns the name without anybody's help.
        wait_for(lambda: "r == 'example.com/mem'" in str(site.api.get(HIDING)["spec"]), within=60)
        hooks = site.api.get(HOOKS)
        for hook in hooks["webhooks"]:
            for condition in hook.get("matchConditions", ()):
                condition["expression"] = condition["expression"].replace("r.startsWith(", MENDED)
        site.api.replace(HOOKS, hooks)

    for kind in KINDS:
        assert "do not name example.com/mem: pods" in found[kind]
    assert "r == 'example.com/mem' ||" in found["MutatingWebhookConfiguration"]
