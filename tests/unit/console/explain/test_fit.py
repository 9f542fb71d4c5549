"""Fits: what a manifest's pods would get now, by the rules of admission and of the Binding."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import yaml

from allocator.config.device_config import (
    DeviceConfig,
    configured_vocabularies,
    load_device_config,
    vocabularies_named_in_vain,
)
from allocator.config.manifest import pods_in
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.config.node_templates import NodeTemplate
from allocator.config.settings import FleetScope, NodeAgent, Prefer, Settings, settings_of
from allocator.model.decision import ModeSource, Reason
from allocator.model.problem import Loaded
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from allocator.placement.choose import PlacementPolicy
from allocator.report.feasibility import FeasibilityVerdict, exit_code
from allocator.report.terminal_lines import WIDTH, plain_text, printed_lines
from allocator.volcano.register import encode_register
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView, Configuration, cluster_view
from console.explain.fit import Fit, fit, fit_document, fit_of, lines
from console.explain.pod_amounts import ContainerAmounts, imagined_pod, memory_of
from console.get.listing import OutputFormat, document
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import A30, A100_40, T4, gpu, mig_grant, node, nodes_of, snapshot
from tests.builders.pods import (
    MEMORY,
    MODE,
    NUMBER,
    PERCENT,
    Json,
    admitted,
    container,
    pod,
    received,
)
from tests.unit.console.sites import NOW, machine, site, soft
from webhook.admission.context import AdmissionContext

Golden = Callable[[str, str], str]
TABLE = Path(__file__).parents[3] / "golden/volcano/device-config-a.yaml"


def asking(memory: object, mode: str = "") -> Json:
    limits = {NUMBER: 1, MEMORY: memory}
    return pod(container(limits=limits), annotations={MODE: mode} if mode else None)


def fitted(
    written: Json, found: ClusterView | None = None, policy: NamespacePolicy = ANY_MODE
) -> Fit:
    made = pods_in(yaml.safe_dump(written), PodView, namespace="team-a")
    assert isinstance(made, Loaded)
    return fit(made.value[0], found or site(), policy=policy)


def configured(settings: Settings, *gpu_nodes: Json) -> ClusterView:
    machines = [machine(one["metadata"]["name"]) for one in gpu_nodes]
    configuration = Configuration(settings=settings)
    return cluster_view(gpu_nodes, machines, now=NOW, configuration=configuration)


CUT = gpu_node(nodes_of(1, A30, mode=Mode.MIG, name="cut"))
IN_MPS = nodes_of(1, A100_40, mode=Mode.MPS, name="beside")
CLOSED = Settings(fleet=FleetScope.CLOSED)
FITS = {
    "now": fitted(asking(3000)),
    "later": fitted(asking(5000, mode="hami-core")),
    "refused": fitted(asking(90000), configured(CLOSED, CUT)),
    "unreadable": fitted(asking("8Gi")),
    "nothing": fitted(pod(container())),
}


def listed() -> ClusterView:
    """Return an A100 that Volcano's scheduler knows too, as one instance of group1 is in use."""
    gpus = nodes_of(1, A100_40, mode=Mode.MIG, name="cut")
    taken = msgspec.structs.replace(mig_grant("1g.5gb", 0, gpu="GPU-cut-0"), position="group1-0")
    known = machine("cut", register=encode_register(gpus.gpus))
    shipped = load_device_config(TABLE.read_text())
    assert isinstance(shipped, Loaded)
    policy = PlacementPolicy(geometries=shipped.value.geometries)
    configuration = Configuration(policy=policy)
    return cluster_view(
        [gpu_node(gpus, [entry("tune-0", taken)])], [known], now=NOW, configuration=configuration
    )


AMOUNTS = ContainerAmounts(
    memory=MiB(12000), cores=CorePercent(40), count=2, mode=Mode.HAMI_CORE, models=("T4",)
)
SHOWN = FITS | {
    "listed": fitted(asking(18000, mode="mig"), listed()),
    "amounts": fit_of(AMOUNTS.request, imagined_pod("team-a"), site()),
}


@pytest.mark.parametrize("name", SHOWN)
def test_fits_are_shown_as_reviewed(name: str, golden: Golden) -> None:
    """The texts stand in tests/golden; --update-golden writes them anew."""
    text = lines(SHOWN[name], "" if name == "amounts" else "pod.yaml")
    found = list(map(plain_text, printed_lines(text)))
    shown = "".join(f"{line}\n" for line in found)

    assert max(map(len, found)) <= WIDTH
    assert shown == golden(f"kubectl-fit-{name}.txt", shown)


def test_documents_are_what_docs_promise(golden: Golden) -> None:
    """Keys are public: they are only ever added; the exit code is the worst of all."""
    shown = document(fit_document([("pod.yaml", one) for one in FITS.values()]), OutputFormat.JSON)

    assert f"{shown}\n" == golden("kubectl-fit.json", f"{shown}\n")
    assert json.loads(shown)["exitCode"] == 5


@pytest.mark.parametrize(
    ("name", "code"), [("now", 0), ("later", 4), ("refused", 5), ("unreadable", 5), ("nothing", 0)]
)
def test_exit_codes_tell_now_from_later_from_never(name: str, code: int) -> None:
    """They are those of `vgpu plan`."""
    assert exit_code([FITS[name].verdict]) == code


def test_a_node_out_of_service_does_not_count_as_free() -> None:
    """Its hardware would do, so it is not never, but not now either."""
    found = site([gpu_node(node("n0", gpu(T4)))], [machine("n0", cordoned=True)])

    assert fitted(asking(3000), found).verdict is FeasibilityVerdict.NOT_NOW


def test_an_unknown_inventory_never_means_never() -> None:
    """A node that has not reported may have what is asked for."""
    known = site([gpu_node(soft())], [machine("gpu-b")])

    assert fitted(asking(90000), known).verdict is FeasibilityVerdict.NEVER
    assert fitted(asking(90000)).verdict is FeasibilityVerdict.NOT_NOW


def test_the_namespace_may_prefer() -> None:
    """Its word goes before the cluster's, at CREATE and at the Binding."""
    found = configured(Settings(), gpu_node(nodes_of(1, A100_40, mode=Mode.MIG)), gpu_node(soft()))
    written = asking(6000)

    isolated = fitted(written, found, NamespacePolicy(prefer=Prefer.ISOLATION))
    dense = fitted(asking(1000), found, NamespacePolicy(prefer=Prefer.DENSITY))

    assert isolated.choice is not None
    assert dense.choice is not None
    assert (isolated.choice.mode, dense.choice.mode) == (Mode.MIG, Mode.HAMI_CORE)
    assert isolated.outlook is not None
    assert [one.grant.mode for one in isolated.outlook.devices] == [Mode.MIG]


def test_the_namespace_may_demand() -> None:
    """Where only MIG is strong enough, a pod that names nothing gets it, however dear it is."""
    found = configured(Settings(), gpu_node(nodes_of(1, A100_40, mode=Mode.MIG)), gpu_node(soft()))
    demand = NamespacePolicy(min_isolation="mig")

    isolated = fitted(asking(1000), found, demand)
    nowhere = fitted(asking(1000), configured(Settings(), gpu_node(soft())), demand)
    named = fitted(asking(1000, "hami-core"), found, demand)
    beside = fitted(asking(1000, "mps"), configured(Settings(), gpu_node(IN_MPS)), demand)
    softly = NamespacePolicy(min_isolation="hami-core")
    allowed = fitted(asking(1000, "mps"), configured(Settings(), gpu_node(IN_MPS)), softly)

    assert isolated.choice is not None
    assert (isolated.choice.mode, isolated.choice.source) == (Mode.MIG, ModeSource.ONLY)
    assert isolated.outlook is not None
    assert [one.grant.mode for one in isolated.outlook.devices] == [Mode.MIG]
    assert nowhere.verdict is not FeasibilityVerdict.FITS
    assert named.verdict is FeasibilityVerdict.REFUSED
    for refused in (named, beside):
        assert [finding.reason for finding in refused.findings] == [Reason.ISOLATION]
    assert allowed.verdict is FeasibilityVerdict.FITS


def test_nodes_that_may_come_count_at_admission_only() -> None:
    """A declared template keeps a pod from being refused; it fits nowhere yet all the same."""
    template = NodeTemplate(model=A100_40, mode=Mode.MIG)
    closed = Settings(fleet=FleetScope.CLOSED, node_templates=(template,))

    found = fitted(asking(39000), configured(closed, CUT))

    assert found.findings == ()
    assert found.verdict is FeasibilityVerdict.NEVER


def test_percentages_become_memory_where_upstream_serves() -> None:
    """Its plugin knows none, so admission translates, or asks for MiB where GPUs differ."""
    upstream = Settings(node_agent=NodeAgent.UPSTREAM)
    half = pod(container(limits={NUMBER: 1, PERCENT: 50}))
    one, two = gpu_node(soft()), gpu_node(nodes_of(1, A100_40, name="big"))

    translated = fitted(half, configured(upstream, one))
    ambiguous = fitted(half, configured(upstream, one, two))

    assert translated.request is not None
    assert translated.request.containers[0].memory == 7680
    assert [str(finding.reason) for finding in ambiguous.findings] == ["ConflictingRequest"]


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        pytest.param({"nvidia.com/gpu": 1}, FeasibilityVerdict.NO_REQUEST, id="alone"),
        pytest.param(
            {"nvidia.com/gpumem": 3000, "nvidia.com/priority": 1},
            FeasibilityVerdict.REFUSED,
            id="beside-volcanos",
        ),
    ],
)
def test_a_vocabulary_that_is_named_in_vain_is_told_as_by_admission(
    limits: Json, verdict: FeasibilityVerdict
) -> None:
    """Alone it passes with a warning, and beside another it is refused."""
    settings = settings_of("vocabularies: [volcano, hami]")
    devices = DeviceConfig(memory_name="nvidia.com/gpumem")
    configuration = Configuration(
        settings=settings,
        vocabularies=configured_vocabularies(settings, devices),
        lost=vocabularies_named_in_vain(settings, devices),
    )

    found = fitted(pod(container(limits=limits)), replace(site(), configuration=configuration))

    assert found.verdict is verdict
    (told,) = (*found.warnings, *map(str, found.findings))
    assert "belongs to the vocabulary hami" in told


def test_a_copied_manifest_is_read_as_it_was_first_asked() -> None:
    """A mode that admission wrote is not taken for one that the user named."""
    both = snapshot(soft(), nodes_of(1, A100_40, mode=Mode.MIG, name="cut"))
    around = AdmissionContext(settings=Settings(), snapshot=both, host_paths=True)
    written = admitted(received(asking(3000)), around)
    forged = copy.deepcopy(written)
    del forged["metadata"]["annotations"]["vgpu-admission.io/asked"]

    found, named = fitted(written), fitted(forged)

    assert written["metadata"]["annotations"]["vgpu-admission.io/mode-source"] == "best"
    assert found.request is not None
    assert found.request.mode is None
    assert named.request is not None
    assert named.request.mode == written["metadata"]["annotations"][MODE]


@pytest.mark.parametrize("mode", ["", "mig", "hami-core"])
@pytest.mark.parametrize("memory", [3000, 5000, 18000, 90000])
def test_amounts_are_judged_as_the_manifest_that_they_stand_for(memory: int, mode: str) -> None:
    """So that whoever asked so may write it down and see the same."""
    amounts = ContainerAmounts(memory=MiB(memory), mode=Mode(mode) if mode else None)
    written = fitted(asking(memory, mode=mode))

    found = fit_of(amounts.request, imagined_pod("team-a"), site())

    assert (found.request, found.choice) == (written.request, written.choice)
    assert (found.verdict, found.findings) == (written.verdict, written.findings)


def test_amounts_without_memory_are_whole_gpus() -> None:
    """As for a pod that names a number of GPUs only."""
    whole = fitted(pod(container(limits={NUMBER: 2})))

    assert (
        fit_of(ContainerAmounts(count=2).request, imagined_pod("team-a"), site()).request
        == whole.request
    )


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        *((text, 18432) for text in ("18432", "18432Mi", "18Gi")),
        *(
            (text, None)
            for text in (
                "",
                "0",
                "-1",
                "1.5",
                "8G",
                "8 Gi",
                "\N{ARABIC-INDIC DIGIT ONE}",
                "99999999999",
            )
        ),
    ],
)
def test_memory_is_read_with_the_units_of_lists(text: str, memory: int | None) -> None:
    """Decimal units are refused: they are not what anything here is counted in."""
    assert memory_of(text) == memory
