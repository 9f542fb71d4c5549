"""What the API server does about binds that no replica answers: the base says, or a component."""

import contextlib
from collections.abc import Iterator

import yaml

from tests.cluster.api import JSON_PATCH
from tests.cluster.installation import HOOKS, Installation
from tests.cluster.site import MANIFESTS

REGISTRATION = f"{HOOKS}/mutatingwebhookconfigurations/vgpu-admission"


@contextlib.contextmanager
def binds_ignored(site: Installation) -> Iterator[None]:
    """Apply the component ``bind-ignore``; put the failure policy back afterwards."""
    text = (MANIFESTS / "components/bind-ignore/kustomization.yaml").read_text()
    (patch,) = yaml.safe_load(text)["patches"]
    ops = yaml.safe_load(patch["patch"])
    site.api.patch(REGISTRATION, ops, kind=JSON_PATCH)
    try:
        yield
    finally:
        back = [{**op, "value": "Fail"} if op["op"] == "replace" else op for op in ops]
        site.api.patch(REGISTRATION, back, kind=JSON_PATCH)


def bind_policy(site: Installation) -> str:
    """Return what the API server does about binds that our hook does not answer."""
    hooks = site.api.get(REGISTRATION)["webhooks"]
    (found,) = [h["failurePolicy"] for h in hooks if h["name"] == "bindings.vgpu-admission.io"]
    return str(found)
