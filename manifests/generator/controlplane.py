"""The policy on the control plane: which annotations it may write on Nodes.

Its role may patch Nodes, and a role cannot be limited to fields: without a policy it could label,
taint and cordon them.
"""

from typing import Final

from allocator.catalog import hami_keys
from allocator.catalog.conditions import strings, text
from allocator.catalog.keys import HAMI_REGISTER_KEY, REGISTER_KEY
from allocator.controllers.requeue import FREED_KEY
from allocator.volcano.register import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from manifests.generator.names import CONTROL_PLANE, Json
from manifests.generator.parts import (
    binding,
    metadata,
    only_keys,
    policy,
    rule,
    same_field,
    variable,
)

# Waking schedulers, registering with Volcano's and HAMi's, and the lock of their plugins.
WRITTEN: Final = (
    FREED_KEY,
    REGISTER_ANNOTATION,
    HANDSHAKE_ANNOTATION,
    REGISTER_KEY,
    hami_keys.REGISTER_ANNOTATION,
    hami_keys.HANDSHAKE_ANNOTATION,
    hami_keys.LOCK_ANNOTATION,
    HAMI_REGISTER_KEY,
)


def control_plane() -> tuple[Json, Json]:
    """Return the policy about our own writes on Nodes, and its binding."""
    by_us = f"request.userInfo.username == {text(CONTROL_PLANE)}"
    spec = {
        "matchConstraints": {"resourceRules": [rule("UPDATE", "nodes")]},
        "matchConditions": [{"name": "by-the-control-plane", "expression": by_us}],
        "variables": [*metadata(), variable("ours", strings(WRITTEN))],
        "validations": [
            {
                "expression": " &&\n".join(
                    (
                        "object.spec == oldObject.spec",
                        "variables.labelsBefore == variables.labelsAfter",
                        only_keys(("before", "after"), "k in variables.ours"),
                        *(same_field("metadata", key) for key in ("finalizers", "ownerReferences")),
                    )
                ),
                "message": (
                    "the control plane of vgpu-admission may change only a few annotations of "
                    "a Node"
                ),
            }
        ],
    }
    return policy("control-plane", spec), binding("control-plane", ["Deny"])
