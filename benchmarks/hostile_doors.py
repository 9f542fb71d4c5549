"""Doors that stay closed: each tries one attack in this process, and yields what got through.

A further door is one more function with ``@door``, named after what it tries.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from allocator.cli.http_server import Listen
from allocator.config.settings import DEFAULTS
from allocator.ledger.decode import decode_text
from allocator.model.gpu import Snapshot
from benchmarks.hostile_board import boards
from certs.issue import IssueParameters, Names
from certs.refresh_controller import throwaway
from certs.tls_server import ServingPair
from tests.builders.pods import MEMORY, MODE, admitted, container, pod, received, typed, variables
from webhook.admission import ephemeral_containers
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import confirm, decide
from webhook.admission.outcome import Outcome, Refused, Untouched
from webhook.caller.hook_paths import HOOK_PATHS, HookPaths
from webhook.serve.extender import ExtenderService

Json = dict[str, Any]
Door = Callable[[], Iterator[str]]
DOORS: Final[dict[str, Door]] = {}
CONTEXT: Final = AdmissionContext(
    settings=DEFAULTS, snapshot=Snapshot(version="1"), host_paths=True
)
HAMI: Final = {MODE: "hami-core"}
VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
TOKEN: Final = "a1" * 32


def door(attack: Door) -> Door:
    """Add *attack* to the doors."""
    DOORS[attack.__name__] = attack
    return attack


def breaches() -> dict[str, list[str]]:
    """Try every door, and return what got through, by its name."""
    return {name: found for name, attack in DOORS.items() if (found := list(attack()))}


def _asking(**more: Any) -> Json:  # noqa: ANN401 -- any JSON
    return pod(container(limits={MEMORY: 3000}, **more), annotations=HAMI)


def _passes(outcome: Outcome) -> bool:
    return not isinstance(outcome, Refused)


@door
def forged_paths() -> Iterator[str]:
    """A.1: hooks answer who knows the secret."""
    paths = HookPaths((TOKEN,))
    for hook in set(HOOK_PATHS.values()):
        guesses = ("", "/", "/" + "0" * 64, f"/{TOKEN[:-1]}", f"/{TOKEN}x", f"/{TOKEN.upper()}")
        for guess in guesses:
            if paths.hook_of(hook + guess) is not None:
                yield hook + guess
    if HookPaths(()).hook_of("/mutate/pods") is not None:
        yield "before any secret is known"


@door
def unknown_schedulers() -> Iterator[str]:
    """A.2: the extender serves no strangers where others reach it."""
    service = object.__new__(ExtenderService)
    for host in ("0.0.0.0", "::", "10.0.0.1", "extender.example.com"):  # noqa: S104 -- all there are
        serving = ExtenderService.serve(service, Listen(host, 0), lambda *_: None, drain=0)
        try:
            serving.gen.asend(None).send(None)
        except ValueError:
            continue
        except StopIteration:
            pass
        yield host
    _, pair = throwaway(IssueParameters(names=Names(dns=("localhost",))))
    mutual = ServingPair(mutual=True)
    mutual.load(pair)
    if mutual.ready:
        yield "a port without authorities"


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
            for judge in (decide, confirm):
                if _passes(judge(typed(once), CONTEXT)):
                    yield f"{judge.__name__}: {name} from {path}"


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


def _rewritten_keys(outcome: Outcome) -> frozenset[str]:
    """Return the annotations that admission overwrites."""
    intent = getattr(outcome, "intent", None)
    return frozenset(intent.annotations) if intent is not None else frozenset()


@door
def control_characters_of_nodes() -> Iterator[str]:
    """C.1: strings of a node's status carry no control characters."""
    for name, text in boards().items():
        gpus = decode_text(text).node.gpus
        if not all(gpu.model.isprintable() and gpu.uuid.isprintable() for gpu in gpus):
            yield f"{name}: {gpus[0].model!r}"
