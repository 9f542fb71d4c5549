"""Every example in docs/ask.md is admitted, and its tables hold the keys that the product reads."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from allocator.catalog import keys
from allocator.catalog.vocabularies import FOREIGN, OWN, VOCABULARIES
from allocator.config.manifest import ManifestPod, pods_in
from allocator.config.settings import DEFAULTS, Prefer
from allocator.model.decision import Reason
from allocator.model.problem import Loaded
from allocator.model.request import Mode, PodRequest
from allocator.report.feasibility import FeasibilityVerdict
from allocator.request.pod_annotations import HAMI_GPU_KEY, HAMI_NODE_KEY
from allocator.request.resource_names import ResourceRole, resource_names
from console.cluster.pod import PodView, request_of
from tests.builders.pods import admitted, container, pod, typed
from tests.unit.test_docs import DOCS, ROOT
from webhook.admission.decide import confirm
from webhook.admission.outcome import Refused, Rewritten
from webhook.plan.plan import plan
from webhook.plan.plan_cli import surroundings
from webhook.review.pod_schema import Pod

PAGE = (DOCS / "ask.md").read_text()
METAX_PAGE = (DOCS / "metax.md").read_text()  # its words have a page of their own
EXAMPLES = re.findall(r"(?ms)^```yaml\n(.*?)^```$", PAGE)
MANIFESTS = [text for text in EXAMPLES if "kind:" in text]
SAMPLE = ROOT / "webhook/samples/fleet.yaml"
CONTEXT = surroundings(fleet=SAMPLE.read_text(), name=SAMPLE.name, settings=DEFAULTS)
INJECT = f"{OWN}inject"


def rows(header: str, page: str = PAGE) -> dict[str, list[str]]:
    """Return the rows of the table that begins with *header*: the other cells by the key."""
    found = re.search(rf"(?m)^\| {header} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", page)
    assert found is not None, header
    lines = [line.strip("|").split("|") for line in found[1].splitlines()]
    return {cells[0].strip(" `"): [cell.strip() for cell in cells[1:]] for cells in lines}


def named(text: str) -> str:
    return " ".join(re.findall(r"(?m)^  name: (\S+)", text))


def made(text: str) -> list[ManifestPod[Pod]]:
    found = pods_in(text, Pod)
    assert isinstance(found, Loaded), found
    assert found.warnings == ()
    return list(found.value)


def notebooks() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield what the spawner of JupyterHub makes of each choice on the page: name and pod."""
    (text,) = [text for text in EXAMPLES if text not in MANIFESTS]
    for profile in yaml.safe_load(text)["singleuser"]["profileList"]:
        override = profile.get("kubespawner_override", {})
        yield (
            profile["display_name"],
            pod(
                container(limits=override.get("extra_resource_limits")),
                annotations=override.get("extra_annotations"),
            ),
        )


@pytest.mark.parametrize("text", MANIFESTS, ids=named)
def test_an_example_is_admitted_and_fits(text: str) -> None:
    """Whoever pastes it gets a GPU, on the fleet of the demo."""
    for one in made(text):
        planned = plan(one, CONTEXT)

        assert planned.verdict is FeasibilityVerdict.FITS, planned.answer.message
        assert isinstance(planned.outcome, Rewritten)
        assert planned.answer.warnings == ()
        assert isinstance(confirm(typed(admitted(dict(one.sent), CONTEXT)), CONTEXT), Rewritten)


@pytest.mark.parametrize("text", MANIFESTS, ids=named)
def test_an_example_is_read_by_the_plugin(text: str) -> None:
    """`kubectl vgpu fit` reads the same request as admission."""
    found = pods_in(text, PodView)

    assert isinstance(found, Loaded)
    for one, same in zip(found.value, made(text), strict=True):
        request = request_of(one.pod, VOCABULARIES)
        assert isinstance(request, PodRequest)
        assert request == plan(same, CONTEXT).request


@pytest.mark.parametrize("written", [pytest.param(p, id=name) for name, p in notebooks()])
def test_a_notebook_of_jupyterhub_is_admitted(written: dict[str, Any]) -> None:
    """The choice without a GPU asks for nothing; each other one fits."""
    planned = plan(made(yaml.safe_dump(written))[0], CONTEXT)

    asks = written["spec"]["containers"][0].get("resources") is not None
    wanted = FeasibilityVerdict.FITS if asks else FeasibilityVerdict.NO_REQUEST
    assert planned.verdict is wanted, planned.answer.message


def test_the_privileged_container_of_jupyterhub_is_refused() -> None:
    """The chart adds one unless it is told not to, as the page says."""
    asking = next(p for _, p in notebooks() if "resources" in p["spec"]["containers"][0])
    block = container("block-cloud-metadata", securityContext={"privileged": True})
    spec = asking["spec"] | {"initContainers": [block]}

    outcome = plan(made(yaml.safe_dump({**asking, "spec": spec}))[0], CONTEXT).outcome

    assert isinstance(outcome, Refused)
    assert outcome.findings.first.reason is Reason.PRIVILEGED


def annotation_keys() -> set[str]:
    """Return all annotations of a pod that change what it gets."""
    own = {
        key
        for v in VOCABULARIES
        for key in (
            v.mode_key, v.isolate_key, v.use_models, v.not_models, v.use_uuids, v.not_uuids,
            v.topology_key,
        )
        if key is not None
    }  # fmt: skip
    for vocabulary in VOCABULARIES:
        if (shares := vocabulary.share_keys) is not None:
            own |= {shares.policy, shares.app_class}
    return own | keys.USER_KEYS | {HAMI_NODE_KEY, HAMI_GPU_KEY}


def test_the_tables_have_every_key() -> None:
    """A key that nobody can look up is used by nobody; one that is not read misleads."""
    by_name = resource_names(VOCABULARIES).by_name

    assert set(rows("resource")) | set(rows("resource", METAX_PAGE)) == set(by_name)
    assert set(rows("annotation")) | set(rows("annotation", METAX_PAGE)) == annotation_keys()
    assert set(rows("key")) == {INJECT, keys.PREFER_KEY, keys.MIN_ISOLATION_KEY, keys.HIGH_KEY}
    assert [prefix for prefix in FOREIGN if f"`{prefix}" not in PAGE] == []


def test_each_key_is_in_an_example() -> None:
    """A table says what a key means; an example says where it goes."""
    text = "".join((*EXAMPLES, METAX_PAGE))

    used = {*resource_names(VOCABULARIES).by_name, *annotation_keys()}
    assert sorted(key for key in used if f" {key}: " not in text) == []


def test_the_largest_amounts_are_those_of_the_code() -> None:
    """A number above the bound of the table is refused."""
    table = rows("resource") | rows("resource", METAX_PAGE)

    for name, resource in resource_names(VOCABULARIES).by_name.items():
        if resource.role is not ResourceRole.MEMORY:
            assert table[name][-1].endswith(f"to {resource.most}"), name


def test_the_words_of_a_namespace_are_those_of_the_code() -> None:
    """Another word is ignored without an error."""
    table = rows("key")

    assert table[keys.PREFER_KEY][-1] == ", ".join(f"`{word}`" for word in Prefer)
    levels = (Mode.MEMORY_ONLY, Mode.HAMI_CORE, Mode.MIG)
    assert table[keys.MIN_ISOLATION_KEY][-1] == ", ".join(f"`{level}`" for level in levels)
    assert table[keys.HIGH_KEY][-1] == f"`{keys.HIGH_ALLOWED}`"
