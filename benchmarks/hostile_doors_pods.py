"""B: GPUs, limits and volumes that a pod was not granted, and what a pod may cost."""

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import msgspec
from structlog.testing import capture_logs

from agent.node.pods import parse_pod
from allocator.catalog.keys import MIN_ISOLATION_KEY
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.namespace_policy import NamespacePolicy, namespace_policy
from allocator.config.settings import DEFAULTS, NodeAgent, settings_of
from allocator.ledger.assign import assign
from allocator.model.allocation import Assignment
from allocator.model.gpu import Node, Snapshot
from allocator.model.request import Mode
from allocator.placement.choose import PlacementPolicy
from benchmarks.hostile_door import door
from tests.builders.bindings import binding, bound, live, stored
from tests.builders.gpunodes import entry, ledger
from tests.builders.model import nodes_of, snapshot, soft_grant
from tests.builders.pods import (
    GPU_MEM,
    MEMORY,
    MODE,
    NUMBER,
    admitted,
    container,
    decided,
    pod,
    received,
    typed,
    variables,
)
from tests.harness.late_commits import ASKING, ASSIGNMENT, SIX, as_told, scene
from tests.harness.late_commits import bound as late_bound
from webhook.admission import ephemeral_containers
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm, decide
from webhook.admission.outcome import Outcome, Refused, Rewritten, Untouched
from webhook.binding.decide import BindRequest, judge

Json = dict[str, Any]
CONTEXT: Final = AdmissionContext(
    settings=DEFAULTS, snapshot=Snapshot(version="1"), host_paths=True
)
HAMI: Final = {MODE: "hami-core"}
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
ORDER: Final = (Mode.MEMORY_ONLY, Mode.HAMI_CORE, Mode.MIG)  # by what they isolate
CUT: Final = nodes_of(8, mode=Mode.MIG, name="hard")
SOFT: Final = nodes_of(8, name="soft")


def _asking(**more: Any) -> Json:  # noqa: ANN401 -- any JSON
    return pod(container(limits={MEMORY: 3000}, **more), annotations=HAMI)


def _passes(outcome: Outcome) -> bool:
    return not isinstance(outcome, Refused)


@door
def work_without_end() -> Iterator[str]:
    """A.4: what is found in one pod has an end, and what is read of it too."""
    many = [{"name": "LD_PRELOAD", "value": "x"}] * 4000
    outcome = decide(typed(received(_asking(env=many))), CONTEXT)
    if not isinstance(outcome, Refused) or len(outcome.findings.all) == len(many):
        yield "thousands of findings"
    names = {f"a.com/{n}": "1" for n in range(10_000)}
    crowded = (pod(container(limits=names)), pod(container(), annotations=names))
    for written in crowded:
        try:
            typed(received(written))
        except msgspec.ValidationError:
            continue
        yield "thousands of names"


@door
def zero_of_a_gpu() -> Iterator[str]:
    """B.2: only who gets a GPU of another plugin keeps those of the node."""
    for limits in (
        {"nvidia.com/none": "0"},
        {"nvidia.com/gpu": "0.0"},
        {"nvidia.com/gpu": "-1"},
        {"nvidia.com/gpu": "0e9"},
        {"nvidia.com/gpu": "+0"},
        {"nvidia.com/gpu": ".0"},
        {"volcano.sh/gpu-memory": "0"},
        {"nvidia.com.example.com/gpu": "1"},
    ):
        found = admitted(received(pod(container(limits=limits))), CONTEXT)
        if variables(found) != {VISIBLE: "void"}:
            yield str(limits)
    placed = pod(container(limits={"nvidia.com/gpu": "1"}), nodeName="gpu-1")
    if isinstance(decide(typed(received(placed)), CONTEXT), Untouched):
        yield "a pod that names its node"


@door
def variables_from_other_annotations() -> Iterator[str]:
    """B.3: a reserved variable reads the annotation that we let it read."""
    paths = [
        f"metadata.annotations['vgpu-admission.io/{key}']"
        for key in ("c0.cores", "c0.memory-0", "c0.nobody-writes", "c0.visible.x", "c0.VISIBLE")
    ]
    for name in (VISIBLE, "CUDA_DISABLE_CONTROL", "VGPU_POD_UID", "VGPU_PRELOAD", "LD_PRELOAD"):
        for path in (*paths, "metadata.uid", "metadata.annotations['mine']"):
            once = admitted(received(_asking()), CONTEXT)
            env = once["spec"]["containers"][0]["env"]
            env[:] = [each for each in env if each["name"] != name]
            env.append({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
            if (name, path) == ("VGPU_POD_UID", "metadata.uid"):
                continue  # as we write it
            for judge_pod in (decide, confirm):
                if _passes(judge_pod(typed(once), CONTEXT)):
                    yield f"{judge_pod.__name__}: {name} from {path}"


@door
def injections_that_are_not_ours() -> Iterator[str]:
    """B.3: the agent takes a container for admitted by what its variable reads alone."""
    ours = "metadata.annotations['vgpu-admission.io/c0.visible']"
    others = ("c0.cores", "c0.memory-0", "c0.gpu-index", "c0.visible.x", "c0.VISIBLE", "c9.nobody")
    envs: list[list[Json]] = [
        [_reading(f"metadata.annotations['vgpu-admission.io/{key}']")] for key in others
    ]
    envs += [[{"name": VISIBLE, "value": value}] for value in ("all", "0", "", ours)]
    envs.append([_reading(ours), {"name": VISIBLE, "value": "all"}])
    for env in envs:
        found = parse_pod(msgspec.json.encode(_running(container(env=env))))
        if found.containers[0].injected:
            yield str(env)
    twins = parse_pod(
        msgspec.json.encode(
            _running(container(env=[_reading(ours)]), container("twin", env=[_reading(ours)]))
        )
    )
    if twins.containers[1].injected:
        yield "a container that reads its neighbour's"


def _reading(path: str) -> Json:
    return {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _running(*containers: Json) -> Json:
    return stored(received(pod(*containers)), name="p", uid="u")


@door
def our_volumes_elsewhere() -> Iterator[str]:
    """B.4: volumes of ours are mounted as we mount them, in debug containers not at all."""
    mounts: tuple[Json, ...] = (
        {"name": "vgpu-regions", "mountPath": "/data"},
        {"name": "vgpu-regions", "mountPath": "/tmp/vgpu"},
        {"name": "vgpu-regions", "mountPath": "/data", "subPath": "."},
        {"name": "vgpu-library", "mountPath": "/data"},
        {"name": "vgpu-library", "mountPath": "/data/../srv"},
        {"name": "vgpu-library", "mountPath": "/tmp", "readOnly": True},
    )
    before = admitted(received(_asking()), CONTEXT)
    for mount in mounts:
        once = copy.deepcopy(before)
        once["spec"]["containers"].append(container("side", volumeMounts=[mount]))
        if _passes(decide(typed(once), CONTEXT)):
            yield f"beside: {mount}"
        after = copy.deepcopy(before)
        after["spec"]["ephemeralContainers"] = [
            {"name": "debug", "image": "i", "volumeMounts": [mount]}
        ]
        if _passes(ephemeral_containers.decide(typed(after), typed(before), CONTEXT)):
            yield f"debug container: {mount}"


@door
def device_lists_by_mount() -> Iterator[str]:
    """B.7: a mount that names GPUs to the runtime is refused, with vGPU and without."""
    for path in (
        "/var/run/nvidia-container-devices/all",
        "/run//nvidia-container-devices/0",
        "/run/../run/nvidia-container-devices/GPU-1",
    ):
        mounts = [{"name": "v", "mountPath": path}]
        for written in (_asking(volumeMounts=mounts), pod(container(volumeMounts=mounts))):
            if _passes(decide(typed(received(written)), CONTEXT)):
                yield path


@door
def annotations_of_ours() -> Iterator[str]:
    """B.5: a tenant writes no annotation that an allocation rests on."""
    for key in (
        "vgpu-admission.io/assignment",
        "vgpu-admission.io/c0.visible",
        "vgpu-admission.io/asked",
        "volcano.sh/vgpu-ids-new",
        "cdi.k8s.io/x",
    ):
        written = pod(container(limits={MEMORY: 3000}), annotations={**HAMI, key: "GPU-1"})
        once = decide(typed(received(written)), CONTEXT)
        if _passes(once) and key not in _rewritten_keys(once):
            yield key


@door
def late_commits_by_a_tenants_word() -> Iterator[str]:
    """B.5: where another plugin serves a node, its list goes before a pod's own assignment."""
    lie = {ASSIGNMENT: as_told(entry("uid-p", soft_grant(3000, gpu="GPU-n0-0")))}
    upstream = NodeAgent.UPSTREAM
    unlabelled = stored(received(ASKING), name="p", uid="uid-p")
    unlabelled["spec"]["nodeName"] = "n0"
    unlabelled["metadata"]["annotations"] = {**SIX, **lie}
    pods = {"admitted": late_bound({**SIX, **lie}, upstream), "never seen": unlabelled}
    with capture_logs():
        for how, found in pods.items():
            promised = scene(found, agent=upstream).sweep().promised
            gpus = {g.gpu for one in promised for held in one.containers for g in held.grants}
            if gpus != {"GPU-n0-1"}:
                yield f"a pod that was {how}: {sorted(gpus)}"


def _rewritten_keys(outcome: Outcome) -> frozenset[str]:
    """Return the annotations that admission overwrites."""
    intent = getattr(outcome, "intent", None)
    return frozenset(intent.annotations) if intent is not None else frozenset()


@door
def weaker_isolation_than_demanded() -> Iterator[str]:
    """B.6: no pod of a namespace that demands isolation gets a weaker mode, at no step."""
    small: Json = {NUMBER: 1, MEMORY: 5000}
    wishes: tuple[tuple[Json, dict[str, str]], ...] = (
        (small, {}),
        (small, HAMI),
        (small, {MODE: "mig"}),
        ({GPU_MEM: 4}, {}),
        ({GPU_MEM: 4}, {"vgpu-admission.io/isolate": "true"}),
        ({NUMBER: 1, "volcano.sh/vgpu-cores": 100}, {"vgpu-admission.io/library": "off"}),
    )
    for (limits, annotations), level in product(wishes, (*map(str, ORDER), "hard", "", "MIG")):
        written = pod(container(limits=limits), annotations=annotations)
        free, strict = _demanding(None, CUT, SOFT), _demanding(level, CUT, SOFT)
        for outcome in (
            decided(written, strict),
            *(
                judge_pod(typed(admitted(received(written), free)), strict)
                for judge_pod in (decide, confirm)
            ),
        ):
            if isinstance(outcome, Rewritten) and _is_weaker(outcome.choice.mode, level):
                yield f"{outcome.choice.mode} for {limits} {annotations}, not {level!r}"
        yield from _weaker_binds(written, level)


def _weaker_binds(written: Json, level: str) -> Iterator[str]:
    """Yield what a bind gives a pod that was admitted before its namespace had the demand."""
    for node in (CUT, SOFT):
        stored = live(admitted(received(written), _demanding(None, node)))
        judged = judge(bound(binding(node=node.name)), stored, _demanding(level, node))
        if not isinstance(judged, BindRequest):
            continue
        given = assign(ledger(node), judged.wanted, policy=PlacementPolicy())
        if isinstance(given, Assignment):
            modes = {grant.mode for held in given.containers for grant in held.grants}
            for mode in modes:
                if _is_weaker(mode, level):
                    yield f"{mode} on {node.name} by a bind, not {level!r}"


def _demanding(level: str | None, *nodes: Node) -> AdmissionContext:
    policy = NamespacePolicy() if level is None else namespace_policy({MIN_ISOLATION_KEY: level})
    return AdmissionContext(
        settings=DEFAULTS, snapshot=snapshot(*nodes), host_paths=True, namespace=policy
    )


def _is_weaker(mode: Mode, level: str) -> bool:
    """Say whether *mode* isolates less than *level*; everything does that nobody can read."""
    return level not in set(ORDER) or ORDER.index(mode) < ORDER.index(Mode(level))


@door
def vocabularies_that_are_not_served() -> Iterator[str]:
    """B.6: what the settings leave out is promised to nobody."""
    settings = settings_of("vocabularies: [volcano]")
    context = AdmissionContext(
        settings=settings,
        snapshot=snapshot(CUT, SOFT),
        vocabularies=configured_vocabularies(settings, DeviceConfig()),
        host_paths=True,
    )
    for limits in (
        {GPU_MEM: 4},
        {"aliyun.com/gpu-count": 1},
        {NUMBER: 1, GPU_MEM: 4},
        {NUMBER: 1, MEMORY: 3000, GPU_MEM: "2k"},
    ):
        if isinstance(decided(pod(container(limits=limits)), context), Rewritten):
            yield str(limits)
    beside = pod(container("other"), container(limits={GPU_MEM: 4}))
    if variables(admitted(received(beside), context), "other") != {VISIBLE: "void"}:
        yield "another container of a pod in such a vocabulary sees GPUs"


@door
def honest_pods_that_are_refused() -> Iterator[str]:
    """B.7: pods that ask for nothing may do what names no GPU."""
    order = [{"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}]
    if not _passes(decided(pod(container(env=order)), CONTEXT)):
        yield "CUDA_DEVICE_ORDER"
    for path in ("/run", "/var/run", "/tmp"):
        mounted = container(volumeMounts=[{"name": "v", "mountPath": path}])
        written = pod(mounted, volumes=[{"name": "v", "emptyDir": {}}])
        if not _passes(decided(written, CONTEXT)):
            yield f"emptyDir at {path}"


@door
def host_paths_under_our_names() -> Iterator[str]:
    """C.4: a volume of our name with another path is a library or regions of the tenant's own."""
    for name, path in product(
        ("vgpu-library", "vgpu-regions"),
        ("/tmp/mine", "/usr/local/vgpu2", "/usr/local", "/dev/shm"),
    ):
        once = admitted(received(_asking()), CONTEXT)
        for volume in once["spec"]["volumes"]:
            if volume["name"] == name:
                volume["hostPath"] = {"path": path}
        for judge_pod in (decide, confirm):
            if _passes(judge_pod(typed(once), CONTEXT)):
                yield f"{judge_pod.__name__}: {name} at {path}"


@door
def forged_pasts() -> Iterator[str]:
    """C.4: what a pod says it was asked is not believed where its amounts are others."""
    context = _demanding(None, CUT, SOFT)
    for containers in (
        "{}",
        '{"main":{"volcano.sh/vgpu-number":"1","volcano.sh/vgpu-memory":"1"}}',
        '{"main":{}}',
        '{"other":{"volcano.sh/vgpu-memory":"3k"}}',
    ):
        forged = {
            "vgpu-admission.io/asked": f'{{"mode":null,"containers":{containers}}}',
            "vgpu-admission.io/mode-source": "best",
            MODE: "mig",
        }
        outcome = decided(pod(annotations=forged), context)
        believed = not isinstance(outcome, Rewritten) or outcome.asked.containers
        if believed != {"main": {NUMBER: "1", MEMORY: "3k"}}:
            yield containers
