"""What decisions in a namespace rest on, as its administrator annotated it."""

import pytest

from allocator.cluster.inventory import Inventory
from allocator.config.namespace_policy import ANY_MODE
from allocator.config.settings import Prefer
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.allocator.cluster.test_inventory import (
    KUBE_SYSTEM,
    SYSTEM,
    config,
    play,
    until,
)
from tests.integration.allocator.cluster.test_inventory__hami import settings
from webhook.serve.view import view_of

OURS = "vgpu-admission.io/"


@pytest.mark.parametrize(
    ("annotations", "prefer", "high"),
    [
        pytest.param(None, None, False, id="nothing-said"),
        pytest.param({"high-priority": "allow", "prefer": "density"}, "density", True, id="both"),
        pytest.param({"high-priority": "true", "prefer": "dense"}, None, False, id="neither-word"),
        pytest.param({"task-priority": "high"}, None, False, id="the-pods-own-key"),
        pytest.param({"min-isolation": "mig"}, None, False, id="a-demand"),
        pytest.param({"min-isolation": "hard"}, None, False, id="a-demand-nobody-understands"),
    ],
)
def test_only_the_word_that_is_meant_counts(
    annotations: dict[str, str] | None, prefer: str | None, *, high: bool
) -> None:
    """Anything else leaves a namespace as cautious as one that says nothing."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        unknown = view_of(inventory, "team-a").context
        labels = {f"{OURS}inject": "enabled"}
        said = None if annotations is None else {f"{OURS}{k}": v for k, v in annotations.items()}
        made = {"name": "team-a", "labels": labels, "annotations": said}
        server.objects.create(parsed("/api/v1/namespaces"), {"metadata": made})
        await until(lambda: inventory.namespace("team-a"))
        around = view_of(inventory, "team-a").context

        assert (unknown.namespace, unknown.high_priority) == (ANY_MODE, False)
        assert around.namespace.prefer == (None if prefer is None else Prefer(prefer))
        assert around.namespace.min_isolation == (annotations or {}).get("min-isolation")
        assert around.high_priority is high

    play(scene)


def test_a_decision_knows_of_vocabularies_that_are_named_in_vain() -> None:
    """Whoever asks in one hears of it."""

    async def scene(server: ApiServer, inventory: Inventory) -> None:
        ours = settings("vocabularies: [volcano, hami]")
        text = "resourceCoreName: nvidia.com/gpucores"
        plugins = config("volcano-vgpu-device-config", "device-config.yaml", text)
        assert view_of(inventory, "team-a").context.lost == ()
        server.objects.create(parsed(SYSTEM), ours)
        server.objects.create(parsed(KUBE_SYSTEM), plugins)
        await until(lambda: inventory.lost)
        (lost,) = view_of(inventory, "team-a").context.lost
        assert (lost.vocabulary.name, lost.name) == ("hami", "nvidia.com/gpucores")

    play(scene)
