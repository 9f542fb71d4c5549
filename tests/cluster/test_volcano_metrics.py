"""What Volcano's scheduler exports about devices, our control plane exports alike on demand."""

from collections.abc import Iterator

import pytest

from tests.builders.model import T4, nodes_of
from tests.cluster.api import wait_for
from tests.cluster.volcano import http_get
from tests.cluster.volcano_site import COMPONENT, SERVED_WITHIN, Rig, asking

Samples = dict[tuple[str, frozenset[str]], float]


@pytest.fixture
def exporting(rig: Rig) -> Iterator[Rig]:
    """Yield the installation while it serves those names."""
    text = (COMPONENT / "settings.yaml").read_text()
    rig.site.configure(f"{text}volcanoMetrics: true\n")
    yield rig
    rig.site.configure(text)


def exported(text: str, node: str) -> Samples:
    """Return the samples of *node*, whatever the order of their labels."""
    found: Samples = {}
    for line in text.splitlines():
        name, _, rest = line.partition("{")
        labels, _, value = rest.rpartition("} ")
        if name.startswith("volcano_vgpu_") and f'NodeName="{node}"' in labels:
            found[name, frozenset(labels.split(","))] = float(value)
    return found


def test_its_names_labels_and_units_are_ours(exporting: Rig) -> None:
    """Sample by sample, for a GPU with a tenant and one without."""
    exporting.serve(nodes_of(2, T4, name="gauge"))
    team = exporting.site.namespace()
    exporting.create(team, "tenant", asking("gauge", 3000))
    exporting.wait_for_bound(team, ["tenant"])
    health, port = exporting.site.first.health, exporting.volcano.port

    def agree() -> bool:
        ours = exported(http_get(health, "/metrics"), "gauge")
        theirs = exported(http_get(port, "/metrics"), "gauge")
        return len(ours) == 10 and ours == theirs

    wait_for(agree, within=SERVED_WITHIN)
