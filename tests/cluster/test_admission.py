"""Pods that a real API server sends through our webhook."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Json, wait_for
from tests.cluster.installation import OPTED_IN, Installation, installation
from tests.cluster.site import MANIFESTS
from tests.pods import MODE, variables

SAMPLES = MANIFESTS / "samples" / "pods"


@pytest.fixture(scope="module")
def site(
    programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """Yield an installation of this module's own."""
    with installation(programs, tmp_path_factory.mktemp("admission")) as found:
        yield found


@pytest.fixture
def opted_in(site: Installation) -> str:
    """Return a namespace whose pods come to us."""
    return namespace(site, OPTED_IN)


def namespace(site: Installation, labels: Mapping[str, str]) -> str:
    metadata = {"generateName": "t-", "labels": dict(labels)}
    name: str = site.api.create("/api/v1/namespaces", {"metadata": metadata}).body["metadata"][
        "name"
    ]
    wait_for(lambda: site.api.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    return name


def created(site: Installation, where: str, written: Json) -> Json:
    written = written | {"metadata": {**written["metadata"], "namespace": where}}
    body: Json = site.api.create(f"/api/v1/namespaces/{where}/pods", written).body
    return body


def sample(name: str) -> Json:
    loaded: Json = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    return loaded


def test_a_sample_pod_comes_back_rewritten(site: Installation, opted_in: str) -> None:
    """The thin path: label, apply, and the pod carries a mode and its injection."""
    found = created(site, opted_in, sample("01-three-gigabytes"))

    assert found["metadata"]["annotations"][MODE] in {"mig", "hami-core"}
    assert "c0.visible" in variables(found)["NVIDIA_VISIBLE_DEVICES"]
