"""Rows about the annotations of pods: what admission decided, and what schedulers allocate."""

from typing import Final

from allocator.catalog.conditions import MOST_VARIABLES
from allocator.catalog.hami_keys import ALLOCATED_KEY, PHASE_KEY
from allocator.catalog.keys import (
    ASSIGNMENT_KEY,
    DECISION_KEY,
    GROUP_SIZE_KEY,
    ISOLATE_KEY,
    SERVED_BY_KEY,
)
from manifests.generator.names import Json
from tests.authorization.rows import (
    ALLOCATION,
    ASKS,
    CROWDED,
    FALSE_AGENT,
    FALSE_SCHEDULER,
    FALSE_WEBHOOK,
    FORGED,
    FROZEN,
    HAMI_PLUGIN,
    HAMI_SCHEDULER,
    KUBE_SCHEDULER,
    NAMES_GPUS,
    OPERATOR,
    OUR_SCHEDULER,
    PLUGIN,
    TENANT,
    VOLCANO,
    WEBHOOK,
    Row,
    label,
    metadata,
    note,
    status,
)
from tests.authorization.world import IDS, MODE, VISIBLE

_VGPU: Final = {"volcano.sh/vgpu-number": "1"}


def _pod(
    annotations: Json | None = None, *, limits: Json | None = None, where: str = "containers"
) -> Json:
    container = {"name": "main", "image": "none"}
    asking = {"name": "asking", "image": "none", "resources": {"limits": limits or {}}}
    spec = {"containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new", "annotations": annotations or {}},
        "spec": spec | {where: [asking]},
    }


FREE: Final = (
    *(
        Row(f"tenant {words}", TENANT, "patch", f"pods{where} team/waiting", change)
        for words, where, change in (
            ("annotates a pod", "", note("example.com/x")),
            ("labels a pod", "", label("example.com/x")),
            ("adds a finalizer", "", metadata(finalizers=["example.com/x"])),
            ("lets a pod end", "", {"spec": {"activeDeadlineSeconds": 1}}),
            ("tells a phase", "/status", status(phase="Running")),
            ("writes nothing", "", {}),
            ("writes what stands there", "", note(MODE, "mig")),
            ("annotates a pod by way of its size", "/resize", note(DECISION_KEY)),
            (
                "annotates a pod by way of a debug container",
                "/ephemeralcontainers",
                note(DECISION_KEY),
            ),
        )
    ),
)

DECIDED: Final = (
    *(
        Row(
            f"tenant {words}{where}",
            TENANT,
            "patch",
            f"pods{where} team/{pod}",
            change,
            tuple(rules),
        )
        for where in ("", "/status")
        for words, pod, change, *rules in (
            ("changes the decision", "waiting", note(DECISION_KEY), FROZEN),
            ("removes the decision", "waiting", note(DECISION_KEY, None), FROZEN),
            ("removes all annotations", "waiting", metadata(annotations=None), FROZEN, ALLOCATION),
            ("adds our key", "waiting", note("vgpu-admission.io/x"), FROZEN),
            ("adds an empty key of ours", "waiting", note(ASSIGNMENT_KEY, ""), FROZEN),
            (
                "writes a key that users may write at first",
                "waiting",
                note(ISOLATE_KEY),
                FROZEN,
            ),
            ("changes the mode", "waiting", note(MODE, "hami-core"), FROZEN),
            ("removes the mode", "waiting", note(MODE, None), FROZEN),
            ("adds a filter", "waiting", note("nvidia.com/use-gputype"), FROZEN),
            ("adds a CDI device", "waiting", note("cdi.k8s.io/x"), FROZEN),
            ("removes instances", "bound", note(VISIBLE, None), FROZEN),
            ("changes the allocation", "waiting", note(IDS), ALLOCATION),
            ("removes the allocation", "bound", note(IDS, None), ALLOCATION),
            ("adds an allocation", "waiting", note("volcano.sh/vgpu-node"), ALLOCATION),
            (
                "says that the upstream plugin serves",
                "bound",
                note(SERVED_BY_KEY, "upstream"),
                FROZEN,
            ),
        )
    ),
    *(
        Row(
            f"{name} writes {key} on {pod}",
            who,
            "patch",
            f"pods team/{pod}",
            note(key),
            tuple(rules),
        )
        for name, who, pod, key, *rules in (
            ("webhook", WEBHOOK, "waiting", DECISION_KEY),
            ("webhook", WEBHOOK, "bound", IDS),
            ("webhook", WEBHOOK, "bound", MODE),
            ("false agent", FALSE_AGENT, "bound", VISIBLE, FROZEN),
            ("false webhook", FALSE_WEBHOOK, "waiting", DECISION_KEY, FROZEN),
            ("false webhook", FALSE_WEBHOOK, "waiting", IDS, ALLOCATION),
            ("false scheduler", FALSE_SCHEDULER, "waiting", IDS, ALLOCATION),
            ("operator", OPERATOR, "waiting", DECISION_KEY, FROZEN),
            ("operator", OPERATOR, "waiting", IDS, ALLOCATION),
            ("operator", OPERATOR, "waiting", GROUP_SIZE_KEY, FROZEN),
            ("scheduler", VOLCANO, "waiting", IDS),
            ("scheduler", VOLCANO, "bound", IDS, ALLOCATION),
            ("scheduler", VOLCANO, "upstream", IDS),
            ("scheduler", VOLCANO, "waiting", DECISION_KEY, FROZEN),
            ("scheduler", VOLCANO, "waiting", MODE, FROZEN),
            ("plugin", PLUGIN, "waiting", IDS, ALLOCATION),
            ("plugin", PLUGIN, "bound", IDS, ALLOCATION),
            ("plugin", PLUGIN, "upstream", IDS),
            ("plugin", PLUGIN, "upstream", DECISION_KEY, FROZEN),
            ("plugin", PLUGIN, "upstream", SERVED_BY_KEY, FROZEN),
            ("HAMi's scheduler", HAMI_SCHEDULER, "waiting", ALLOCATED_KEY),
            ("HAMi's scheduler", HAMI_SCHEDULER, "bound", ALLOCATED_KEY, ALLOCATION),
            ("HAMi's scheduler", HAMI_SCHEDULER, "waiting", DECISION_KEY, FROZEN),
            ("HAMi's plugin", HAMI_PLUGIN, "waiting", PHASE_KEY, ALLOCATION),
            ("HAMi's plugin", HAMI_PLUGIN, "bound", PHASE_KEY, ALLOCATION),
            ("HAMi's plugin", HAMI_PLUGIN, "hami", PHASE_KEY),
            ("HAMi's plugin", HAMI_PLUGIN, "hami", SERVED_BY_KEY, FROZEN),
            ("a stranger", OPERATOR, "hami", ALLOCATED_KEY, ALLOCATION),
            ("a stranger", OPERATOR, "waiting", ALLOCATED_KEY, ALLOCATION),
            ("another vendor's plugin", OPERATOR, "upstream", PHASE_KEY),
        )
    ),
    Row(
        "scheduler allocates by way of the status",
        VOLCANO,
        "patch",
        "pods/status team/bound",
        note(IDS),
        (ALLOCATION,),
    ),
    Row(
        "scheduler says who serves, and allocates",
        VOLCANO,
        "patch",
        "pods team/bound",
        metadata(annotations={SERVED_BY_KEY: "upstream", IDS: "GPU-9"}),
        (FROZEN, ALLOCATION),
    ),
    Row(
        "plugin disowns a pod and allocates",
        PLUGIN,
        "patch",
        "pods team/upstream",
        metadata(annotations={SERVED_BY_KEY: None, IDS: "GPU-9"}),
        (FROZEN,),
    ),
    Row(
        "kube-scheduler nominates",
        KUBE_SCHEDULER,
        "patch",
        "pods/status team/waiting",
        status(nominatedNodeName="gpu-1"),
    ),
    Row(
        "kube-scheduler allocates",
        KUBE_SCHEDULER,
        "patch",
        "pods/status team/waiting",
        note(IDS),
        (ALLOCATION,),
    ),
    Row(
        "extender nominates",
        WEBHOOK,
        "patch",
        "pods/status team/waiting",
        status(nominatedNodeName="gpu-1"),
        installed="extender",
    ),
    Row(
        "our scheduler nominates",
        OUR_SCHEDULER,
        "patch",
        "pods/status team/waiting",
        status(nominatedNodeName="gpu-1"),
        installed="kube-scheduler",
    ),
    Row(
        "our scheduler decides",
        OUR_SCHEDULER,
        "patch",
        "pods/status team/waiting",
        note(DECISION_KEY),
        (FROZEN,),
        installed="kube-scheduler",
    ),
)

UNLABELLED: Final = (
    *(
        Row(
            f"tenant without the label creates {words}",
            TENANT,
            "create",
            "pods plain/new",
            made,
            warned=tuple(rules),
        )
        for words, made, *rules in (
            ("a pod", _pod()),
            ("a pod with a user's key", _pod({ISOLATE_KEY: "x", MODE: "mig"})),
            ("a pod of cores", _pod(limits={"cpu": "1"})),
            ("a pod that asks", _pod(limits=_VGPU), ASKS),
            ("a pod that asks as gpushare does", _pod(limits={"aliyun.com/gpu-mem": "4"}), ASKS),
            ("a pod that asks at first", _pod(limits=_VGPU, where="initContainers"), ASKS),
            ("a pod with an allocation", _pod({IDS: "GPU-1"}), FORGED),
            (
                "a pod with a decision that asks",
                _pod({DECISION_KEY: "x"}, limits=_VGPU),
                ASKS,
                FORGED,
            ),
        )
    ),
    *(
        Row(
            f"tenant without the label {words}{where}",
            TENANT,
            "patch",
            f"pods{where} plain/bound",
            change,
            warned=tuple(rules),
        )
        for where in ("", "/status")
        for words, change, *rules in (
            ("annotates", note("example.com/x")),
            ("changes a mode", note(MODE)),
            ("changes a decision", note(DECISION_KEY), FORGED),
            ("removes a decision", note(DECISION_KEY, None), FORGED),
            ("removes all annotations", metadata(annotations=None), FORGED),
        )
    ),
    Row("scheduler without the label allocates", VOLCANO, "patch", "pods plain/bound", note(IDS)),
    Row("plugin without the label allocates", PLUGIN, "patch", "pods plain/bound", note(IDS)),
    Row(
        "webhook without the label decides",
        WEBHOOK,
        "patch",
        "pods plain/bound",
        note(DECISION_KEY),
    ),
)
_NAMING: Final = "NVIDIA_VISIBLE_DEVICES"
_OWN_PATH: Final = "metadata.annotations['vgpu-admission.io/c0.visible']"


def _env(value: object = None, *, name: str = _NAMING, path: str = "") -> Json:
    source = {"valueFrom": {"fieldRef": {"fieldPath": path}}} if path else {}
    return {"env": [{"name": name, **({} if value is None else {"value": value}), **source}]}


_MANY: Final = [{"name": f"A{number}"} for number in range(MOST_VARIABLES + 1)]


def _naming(*, where: str = "containers", **more: object) -> Json:
    made = _pod(where=where)
    made["spec"][where][0] |= more
    return made


def _debugged(**more: object) -> Json:
    debug = {"name": "debug", "image": "none", **more}
    return {"spec": {"ephemeralContainers": [debug]}}


HIDDEN: Final = (
    *(
        Row(f"tenant creates a pod {words}", TENANT, "create", "pods team/new", made, tuple(rules))
        for words, made, *rules in (
            ("that names nothing", _naming()),
            ("with other variables", _naming(**_env("all", name="VISIBLE_DEVICES"))),
            ("that hides all", _naming(**_env("void"))),
            ("that names none", _naming(**_env("none"))),
            ("that leaves the name empty", _naming(**_env(""))),
            ("that names no value", _naming(**_env())),
            ("that names all", _naming(**_env("all")), NAMES_GPUS),
            ("that names one", _naming(**_env("0")), NAMES_GPUS),
            ("that names one by its id", _naming(**_env("GPU-1")), NAMES_GPUS),
            ("that names all in capitals", _naming(**_env("ALL")), NAMES_GPUS),
            ("that hides all but a blank", _naming(**_env("void ")), NAMES_GPUS),
            ("that names several", _naming(**_env("void,0")), NAMES_GPUS),
            ("that writes many characters", _naming(**_env("<" * 1000)), NAMES_GPUS),
            ("that reads our annotation", _naming(**_env(path=_OWN_PATH)), NAMES_GPUS),
            ("that reads its name", _naming(**_env(path="metadata.name")), NAMES_GPUS),
            ("that has too many variables", _naming(env=_MANY), CROWDED),
            ("that names all among too many", _naming(env=[*_MANY, *_env("all")["env"]]), CROWDED),
            ("that has too many at first", _naming(where="initContainers", env=_MANY), CROWDED),
            (
                "that hides all and then names all",
                _naming(env=[*_env("void")["env"], *_env("all")["env"]]),
                NAMES_GPUS,
            ),
            ("that names all at first", _naming(where="initContainers", **_env("all")), NAMES_GPUS),
            (
                "that names all beside another plugin",
                _naming(resources={"limits": {"nvidia.com/gpu": "1"}}, **_env("all")),
                NAMES_GPUS,
            ),
        )
    ),
    *(
        Row(
            f"tenant debugs {words}",
            TENANT,
            "patch",
            "pods/ephemeralcontainers team/bound",
            made,
            tuple(rules),
        )
        for words, made, *rules in (
            ("with nothing", _debugged()),
            ("without GPUs", _debugged(**_env("void"))),
            ("with too many variables", _debugged(env=_MANY), CROWDED),
            ("with all GPUs", _debugged(**_env("all")), NAMES_GPUS),
            ("with a GPU by our annotation", _debugged(**_env(path=_OWN_PATH)), NAMES_GPUS),
        )
    ),
    Row(
        "tenant without the label names all",
        TENANT,
        "create",
        "pods plain/new",
        _naming(**_env("all")),
    ),
)
PODS: Final = (*FREE, *DECIDED, *UNLABELLED, *HIDDEN)
