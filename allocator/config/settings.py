"""Settings: the key ``settings.yaml`` of our ConfigMap, its defaults and its validation."""

from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Final

import msgspec
import yaml

from allocator.catalog.injection import HOST_ROOT, MOST_DEVICES
from allocator.catalog.reserved_paths import host_root_problem
from allocator.catalog.vocabularies import CATALOGUE, HAMI, LARGEST_FACTOR, VOCABULARIES, VOLCANO
from allocator.config.node_templates import NodeTemplate, template_problem
from allocator.config.review_callers import client_ca_problem, source_problem, url_problem
from allocator.model.problem import Loaded, Problem
from allocator.model.request import FillPolicies, FillPolicy, Mode
from allocator.model.untrusted import quote

KNOWN_VOCABULARIES: Final = tuple(vocabulary.name for vocabulary in CATALOGUE)
DEFAULT_VOCABULARIES: Final = tuple(vocabulary.name for vocabulary in VOCABULARIES)
LARGEST: Final = 512 * 1024  # bytes; a ConfigMap holds at most 1 MiB of everything
# Settings that earlier releases had, with what does their work now. They are ignored, so that an
# upgrade with an older settings.yaml keeps everything else in it.
REMOVED: Final = MappingProxyType(
    {
        "bindFailure": "use the component manifests/components/bind-ignore in its place",
        "gangDeadlock": "nothing evicts gangs any more; VgpuGangStuck still reports them",
    }
)


class FleetScope(StrEnum):
    """Whether GPUs may be added that no inventory shows yet, for example by an autoscaler."""

    OPEN = "open"
    CLOSED = "closed"


class NodeAgent(StrEnum):
    """Which device plugin serves the nodes."""

    OURS = "vgpu-admission"
    UPSTREAM = "upstream"  # Volcano's
    HAMI = "hami"

    @property
    def is_other(self) -> bool:
        """Say whether it is another project's plugin, whose registers are the inventory."""
        return self is not NodeAgent.OURS


class Injection(StrEnum):
    """Who mounts the interception library."""

    AUTO = "auto"  # the webhook, except where Pod Security forbids hostPath
    WEBHOOK = "webhook"
    AGENT = "agent"


class Prefer(StrEnum):
    """What decides between two modes that can both serve a pod."""

    COST = "cost"
    ISOLATION = "isolation"
    DENSITY = "density"


class VolcanoMode(StrEnum):
    """Whether the mode we chose is written for vc-scheduler, which then uses no other."""

    OPEN = "open"
    DECIDE = "decide"


class SchedulerName(StrEnum):
    """Whether pods that name no scheduler get ours."""

    KEEP = "keep"
    SET = "set"


class Tolerance(StrEnum):
    """What happens to a pod that uses something unwanted, which a site may still need."""

    REFUSE = "refuse"
    WARN = "warn"
    ALLOW = "allow"


class Enforcement(StrEnum):
    """What happens to a pod that uses more of a GPU than its grant, or another GPU."""

    REPORT = "report"
    EVICT = "evict"


class AuditSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """Where records of decisions go besides the console."""

    stdout: bool = True  # to the output of each program, for log collectors


class MemoryUnit(StrEnum):
    """The unit of ``aliyun.com/gpu-mem``, which the pod does not carry."""

    GIB = "GiB"
    MIB = "MiB"


_ResourceName = Annotated[
    str,
    msgspec.Meta(max_length=317, pattern=r"^[a-z0-9.-]{1,253}/[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z"),
]


class HamiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of the section ``nvidia`` of HAMi's device-config, under HAMi's names and defaults."""

    count_name: _ResourceName = msgspec.field(default=HAMI.count or "", name="resourceCountName")
    memory_name: _ResourceName = msgspec.field(default=HAMI.memory or "", name="resourceMemoryName")
    percent_name: _ResourceName = msgspec.field(
        default=HAMI.percent or "", name="resourceMemoryPercentageName"
    )
    cores_name: _ResourceName = msgspec.field(default=HAMI.cores or "", name="resourceCoreName")
    priority_name: _ResourceName = msgspec.field(
        default=HAMI.priority or "", name="resourcePriorityName"
    )
    memory_factor: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_FACTOR)] = msgspec.field(
        default=1, name="memoryFactor"
    )
    default_memory: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = msgspec.field(
        default=0, name="defaultMemory"
    )
    default_cores: Annotated[int, msgspec.Meta(ge=0, le=100)] = msgspec.field(
        default=0, name="defaultCores"
    )
    default_gpus: Annotated[int, msgspec.Meta(ge=1, le=MOST_DEVICES)] = msgspec.field(
        default=1, name="defaultGPUNum"
    )


Weight = Annotated[int, msgspec.Meta(ge=0, le=100)]


class ScoreWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much each part of a node's load counts in its score."""

    memory: Weight = 1
    cores: Weight = 1
    shares: Weight = 1  # containers on a GPU
    # Only for pods that ask for several GPUs, on nodes that report how their GPUs are connected.
    topology: Weight = 1


Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
# Labels that a pod must all have. Without a label it would be every pod.
LabelRule = Annotated[
    dict[
        Annotated[str, msgspec.Meta(min_length=1, max_length=317)],  # prefix, slash, name
        Annotated[str, msgspec.Meta(max_length=63)],
    ],
    msgspec.Meta(min_length=1, max_length=16),
]


class Settings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """All settings; every field has the default an installation starts with."""

    fleet: FleetScope = FleetScope.OPEN
    node_templates: Annotated[tuple[NodeTemplate, ...], msgspec.Meta(max_length=64)] = ()
    vocabularies: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = DEFAULT_VOCABULARIES
    node_agent: NodeAgent = NodeAgent.OURS
    injection: Injection = Injection.AUTO
    host_root: Annotated[str, msgspec.Meta(max_length=200)] = HOST_ROOT
    prefer: Prefer = Prefer.COST
    node_policy: FillPolicy = FillPolicy.BINPACK
    gpu_policy: FillPolicy = FillPolicy.BINPACK
    score_weights: ScoreWeights = ScoreWeights()
    default_mode: Mode = Mode.HAMI_CORE
    volcano_mode: VolcanoMode = VolcanoMode.OPEN
    volcano_schedulers: tuple[Name, ...] = ("volcano",)
    gpu_exclusive_rules: Annotated[tuple[LabelRule, ...], msgspec.Meta(max_length=64)] = ()
    volcano_register: bool = False
    hami_register: bool = False
    volcano_metrics: bool = False
    plugin_metrics: bool = True
    privileged: Tolerance = Tolerance.REFUSE
    gpushare_memory_unit: MemoryUnit = MemoryUnit.GIB
    hami: HamiSettings = HamiSettings()
    scheduler_name: SchedulerName = SchedulerName.KEEP
    extender_bind: bool = False
    stale_after_seconds: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 120
    gang_timeout_seconds: Annotated[int, msgspec.Meta(ge=10, le=86400)] = 300
    # Where topo-master tells which nodes form a supernode; empty: nowhere.
    node_group_url: Annotated[str, msgspec.Meta(max_length=2048)] = msgspec.field(
        default="", name="nodeGroupURL"
    )
    hyper_nodes: bool = False
    enforcement: Enforcement = Enforcement.REPORT
    audit: AuditSettings = AuditSettings()
    review_client_ca: Annotated[str, msgspec.Meta(max_length=64 * 1024)] = msgspec.field(
        default="", name="reviewClientCA"
    )
    review_sources: Annotated[tuple[Name, ...], msgspec.Meta(max_length=64)] = ()

    @property
    def fill_policies(self) -> FillPolicies:
        """Return how nodes and GPUs are filled for pods that name no policy."""
        return FillPolicies(node=self.node_policy, gpu=self.gpu_policy)


DEFAULTS: Final = Settings()


class SettingsError(Exception):
    """Settings that cannot be used; the text names the value, its place and what is accepted."""


def settings_of(text: str) -> Settings:
    """Return what :func:`load_settings` does, without its warnings."""
    return load_settings(text).value


def load_settings(text: str) -> Loaded[Settings]:
    """Decode the YAML of key ``settings.yaml``; an empty text means the defaults.

    Warns of each setting in :data:`REMOVED`. Raises :class:`SettingsError`.
    """
    if len(text) > LARGEST:
        raise SettingsError(f"settings.yaml has {len(text)} characters; at most {LARGEST} are read")
    try:
        document = yaml.safe_load(text)
        removed = [name for name in REMOVED if isinstance(document, dict) and name in document]
        for name in removed:
            del document[name]
        settings = msgspec.convert({} if document is None else document, Settings)
    except (yaml.YAMLError, RecursionError) as error:
        raise SettingsError(f"settings.yaml is not YAML: {str(error)[:256]}") from error
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"settings.yaml: {str(error)[:256]}{_accepted_values(str(error))}"
        ) from error
    _check(settings)
    return Loaded(value=settings, warnings=tuple(map(_removed_problem, removed)))


def _removed_problem(name: str) -> Problem:
    return Problem(
        path=f"settings.yaml: {name}",
        what=f"this setting was removed and is ignored: {REMOVED[name]}",
        accepted="a settings.yaml without it",
    )


def _accepted_values(message: str) -> str:
    """Return the accepted values of the field that *message* names, where they are a short list."""
    table: type[msgspec.Struct] = Settings
    for field in msgspec.structs.fields(Settings):
        kind = field.type
        if not message.endswith(f"`$.{field.encode_name}`"):
            continue
        if isinstance(kind, type(StrEnum)):
            return f"; accepted: {', '.join(map(str, kind))}"
        if isinstance(kind, type(msgspec.Struct)):
            table = kind
    if "unknown field" in message:
        return f"; accepted: {', '.join(table.__struct_encode_fields__)}"
    return ""


def _check(settings: Settings) -> None:
    """Raise :class:`SettingsError` for values that are valid alone but not together."""
    weights = settings.score_weights
    if not weights.memory + weights.cores + weights.shares:
        raise SettingsError(
            "settings.yaml: scoreWeights is 0 for memory, cores and shares; "
            "give one a weight above 0"
        )
    if settings.default_mode not in {Mode.HAMI_CORE, Mode.MIG}:
        raise SettingsError(
            f'settings.yaml: defaultMode "{settings.default_mode}" cannot be the default; '
            "use hami-core or mig"
        )
    _check_vocabularies(settings.vocabularies, settings.node_agent)
    _check_hami_names(settings.hami)
    if settings.hami_register and settings.node_agent is not NodeAgent.OURS:
        raise SettingsError(
            f"settings.yaml: hamiRegister true goes with nodeAgent {NodeAgent.OURS} only, for "
            f"plugins of others register themselves; nodeAgent is {settings.node_agent}"
        )
    if problem := host_root_problem(settings.host_root):
        raise SettingsError(
            f"settings.yaml: hostRoot {quote(settings.host_root)} is not accepted: {problem}; "
            f"give the path of a folder of its own, such as {HOST_ROOT}"
        )
    _check_review_callers(settings)
    _check_supernodes(settings)
    for number, template in enumerate(settings.node_templates):
        if problem := template_problem(template):
            raise SettingsError(f"settings.yaml: nodeTemplates[{number}].{problem}")


def _check_vocabularies(names: tuple[str, ...], agent: NodeAgent) -> None:
    """Raise :class:`SettingsError` for unknown names, or without those that *agent* needs.

    Our device plugin registers a resource of Volcano's vocabulary, and admission writes it into
    pods of every other. HAMi's plugin registers one of HAMi's, and serves NVIDIA's GPUs by no
    other.
    """
    accepted = ", ".join(KNOWN_VOCABULARIES)
    for number, name in enumerate(names):
        if name not in KNOWN_VOCABULARIES:
            raise SettingsError(
                f"settings.yaml: vocabularies[{number}] {quote(name)} is not known; "
                f"accepted: {accepted}"
            )
    if agent is NodeAgent.HAMI:
        others = [v.name for v in CATALOGUE if v.family == HAMI.family and v != HAMI]
        if HAMI.name not in names or not set(names).isdisjoint(others):
            raise SettingsError(
                f"settings.yaml: nodeAgent {agent} serves the vocabulary {HAMI.name} in place of "
                f"{' and '.join(others)}; set vocabularies: [{HAMI.name}]"
            )
    elif VOLCANO.name not in names:
        raise SettingsError(
            f"settings.yaml: vocabularies lacks {VOLCANO.name}, whose resources pods of all the "
            f"others get too; add {VOLCANO.name}"
        )


def _check_hami_names(hami: HamiSettings) -> None:
    """Raise :class:`SettingsError` for a name that would be read as another resource too."""
    owners = {
        name: f"the vocabulary {v.name}" for v in CATALOGUE if v != HAMI for name in v.resources
    }
    for one in msgspec.structs.fields(HamiSettings):
        name = getattr(hami, one.name)
        if not isinstance(name, str):
            continue
        if name in owners:
            raise SettingsError(
                f"settings.yaml: hami.{one.encode_name} {quote(name)} is a name of {owners[name]} "
                f"too; give a name of its own, such as {one.default}"
            )
        owners[name] = f"hami.{one.encode_name}"


def _check_supernodes(settings: Settings) -> None:
    """Raise :class:`SettingsError` for a tree of supernodes that nobody could read."""
    url = settings.node_group_url
    if problem := url and url_problem(url):
        raise SettingsError(
            f"settings.yaml: nodeGroupURL {quote(url)} is not accepted: {problem}; "
            "give one such as http://topo-master.metax-operator:9001/node_group"
        )
    if settings.hyper_nodes and not url:
        raise SettingsError(
            "settings.yaml: hyperNodes true needs nodeGroupURL, where the tree of nodes is read"
        )


def _check_review_callers(settings: Settings) -> None:
    """Raise :class:`SettingsError` for callers of the hooks that nobody can be."""
    for number, source in enumerate(settings.review_sources):
        if problem := source_problem(source):
            raise SettingsError(f"settings.yaml: reviewSources[{number}] {problem}")
    if settings.review_client_ca and (problem := client_ca_problem(settings.review_client_ca)):
        raise SettingsError(f"settings.yaml: reviewClientCA is not accepted: {problem}")
