"""The rewritten pod: what a request adds to each container, and findings that forbid it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from allocator.catalog.injection import MOUNTS, VARIABLES, Column
from allocator.catalog.keys import (
    ASKED_KEY,
    DECISION_KEY,
    HAMI_WEBHOOK_LABEL,
    MODE_KEY,
    MODE_SOURCE_KEY,
)
from allocator.catalog.launchers import launcher_of
from allocator.catalog.vocabularies import OTHER_PLUGINS, Vocabulary
from allocator.config.settings import (
    Injection,
    SchedulerName,
    Settings,
    Tolerance,
    VolcanoMode,
)
from allocator.families.registry import family_of
from allocator.model.decision import Finding, ModeChoice, ModeSource
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.model.value import Value
from allocator.request.quantity import canonical, parse
from webhook.admission import tenant_checks
from webhook.admission.containers import ContainerRef
from webhook.admission.injection import (
    InjectionValues,
    library_volumes,
    mounts,
    own_key,
    same_mount,
    same_variable,
    variables,
)
from webhook.review.json_patch import ContainerIntent, Entry, Intent
from webhook.review.pod_schema import Pod

_VOLUME_ROWS: Final = frozenset(row.name for row in VARIABLES if row.volumes)
OWN_SCHEDULER: Final = "vgpu-scheduler"  # as overlay kube-scheduler calls it
_USUAL_SCHEDULERS: Final = frozenset({None, "", "default-scheduler"})
_VOID_ENV: Final = variables(Column.VOID, InjectionValues(key=""))
_COLUMN_OF: Final = {
    Mode.MIG: Column.MIG,
    Mode.HAMI_CORE: Column.HAMI_CORE,
    Mode.MEMORY_ONLY: Column.MEMORY_ONLY,
    Mode.MPS: Column.MPS,
}


def blind(container: ContainerRef, pod: Pod) -> ContainerIntent | None:
    """Hide all GPUs from a container, unless they are hidden or it uses another device plugin.

    A pod that names its node passes no scheduler, and kubelet ignores resources that the node does
    not have. So nothing that such a pod asks for shows that a plugin gives it a GPU.
    """
    if "NVIDIA_VISIBLE_DEVICES" in container.reserved:
        return None
    if not pod.spec.node_name and _uses_other_plugin(container):
        return None
    return ContainerIntent(kind=container.kind, index=container.index, env=_VOID_ENV)


def is_blind(container: ContainerRef) -> bool:
    """Say whether all GPUs are hidden from a container already, as :func:`blind` would do it.

    The API server does so itself where our policy is published, before it calls us.
    """
    (void,) = _VOID_ENV
    if void["name"] not in container.reserved:
        return False
    env = container.container.env or ()
    return all(same_variable(entry, void) for entry in env if entry.name == void["name"])


# What is zero or less whatever follows: a pod may name thousands of such amounts.
_NOTHING: Final = re.compile(r"-|[+]?[0.]*+(?![1-9])")


def _uses_other_plugin(container: ContainerRef) -> bool:
    """Say whether another device plugin gives the container a GPU."""
    resources = container.container.resources
    for name, text in ((resources.limits if resources is not None else None) or {}).items():
        if name.startswith(OTHER_PLUGINS) and not _NOTHING.match(str(text)):
            amount = parse(text)
            if amount is not None and amount.value > 0:
                return True
    return False


class Rewrite(Value, frozen=True):
    """Everything that the rewriting of one pod rests on."""

    pod: Pod
    container_refs: Sequence[ContainerRef]  # all containers of the pod
    request: PodRequest
    choice: ModeChoice
    vocabulary: Vocabulary
    settings: Settings
    resources: Mapping[str, Mapping[str, str]]  # as received, by asking container
    host_paths: bool | None  # whether the namespace admits hostPath volumes; None: unknown
    high_priority: bool  # whether the namespace lets a pod hold back others
    extender: bool  # whether schedulers can ask us where a pod fits

    @property
    def column(self) -> Column:
        """Return how its asking containers are treated."""
        family = family_of(self.request)
        if not family.injects:
            return Column.VOID
        if family.served_by(self.settings).is_other:
            return Column.UPSTREAM
        if self.choice.source is ModeSource.BEST:
            return Column.OPEN
        return _COLUMN_OF[self.choice.mode]

    def _column_of(self, container: ContainerRequest) -> Column:
        """Return how one asking container is treated: a whole GPU may go without the library.

        The agent checks against the ledger that the container really got whole GPUs.
        """
        bare = self.request.library_off and container.whole
        return Column.MEMORY_ONLY if bare else self.column

    def _mounts_library(self, column: Column) -> bool:
        """Say whether the webhook mounts the library, or leaves it to the agent.

        Pod Security at baseline or above refuses hostPath volumes, so an unknown namespace
        is left to the agent, which needs none.
        """
        if column not in MOUNTS or self.settings.injection is Injection.AGENT:
            return False
        return self.settings.injection is Injection.WEBHOOK or self.host_paths is True

    def intent(self, asked: str, digest: str) -> tuple[Intent, list[Finding]]:
        """Return the intended change and all that forbids it; *asked* is encoded."""
        limited = False
        asking = {container.name: container for container in self.request.containers}
        keys = keys_of(ref for ref in self.container_refs if ref.container.name in asking)
        findings = self._pod_findings()
        refusing = self.settings.privileged is Tolerance.REFUSE
        changes: list[ContainerIntent] = []
        for ref in self.container_refs:
            container = asking.get(ref.container.name)
            if container is None:
                subject = tenant_checks.CheckedContainer(ref, Column.VOID, shares_gpus=True)
                change = blind(ref, self.pod)
            else:
                column = self._column_of(container)
                mounting = self._mounts_library(column)
                limited = limited or mounting
                subject = self._subject(ref, container, column=column, key=keys[container.name])
                change = self._change(container, subject, mounting=mounting)
            findings += tenant_checks.container(subject)
            if refusing:
                findings += tenant_checks.privileged_findings(ref)
            if change is not None:
                changes.append(change)
        intent = Intent(
            annotations=self._annotations(asked, digest),
            volumes=self._volumes() if limited else (),
            containers=tuple(changes),
            scheduler=self._scheduler(),
        )
        return intent, findings

    def _scheduler(self) -> str | None:
        """Return the scheduler that is to take the pod, where it is not the one it names."""
        usual = self.pod.spec.scheduler_name in _USUAL_SCHEDULERS
        ours = self.settings.scheduler_name is SchedulerName.SET
        return OWN_SCHEDULER if ours and usual else None

    def _pod_findings(self) -> list[Finding]:
        return [
            *tenant_checks.annotations(self.pod),
            *tenant_checks.placement(self.pod),
            *tenant_checks.volumes(self.pod, self.settings.host_root),
            *tenant_checks.priority(self.request, allowed=self.high_priority),
            *tenant_checks.library(self.request, self.column),
        ]

    def _subject(
        self, ref: ContainerRef, container: ContainerRequest, *, column: Column, key: str
    ) -> tenant_checks.CheckedContainer:
        """Return *ref* with all that we would write into it, volumes or not.

        A namespace's policy may change between two passes, so what a mounting pass wrote is
        recognised by one that does not mount.
        """
        factor, memory = self.vocabulary.memory_factor, container.memory or 0
        amounts = InjectionValues(
            key=key,
            count=container.count,
            memory=container.memory,
            cores=container.cores,
            units=memory // factor,
            pod_units=sum([c.memory or 0 for c in self.request.containers]) // factor,
            priority=self.request.priority if container.priority is None else container.priority,
            vocabulary=self.vocabulary.name,
        )
        return tenant_checks.CheckedContainer(
            ref,
            column,
            key,
            variables(column, amounts),
            mounts(column, container.name),
            shares_gpus=True,
        )

    def _change(
        self,
        container: ContainerRequest,
        subject: tenant_checks.CheckedContainer,
        *,
        mounting: bool,
    ) -> ContainerIntent | None:
        """Return what is still missing in one asking container."""
        ref, env = subject.ref, subject.env
        if ref.reserved or not mounting:
            present = ref.reserved if mounting else ref.reserved | _VOLUME_ROWS
            env = tuple([entry for entry in env if entry["name"] not in present])
        new = subject.mounts if mounting else ()
        if ref.near:
            mounted = ref.container.volume_mounts or ()
            new = tuple([e for e in new if not any(same_mount(m, e) for m in mounted)])
        resources, removed = self._resources(container)
        if not (env or new or resources or removed):
            return None
        return ContainerIntent(
            kind=ref.kind,
            index=ref.index,
            env=env,
            mounts=new,
            resources=resources,
            resources_removed=removed,
        )

    def _resources(self, container: ContainerRequest) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the resources to set and to remove.

        The slot is added where it is missing: without it no device plugin is called. A
        percentage that was translated (its memory is known now) gives way to memory.
        """
        present = self.resources[container.name]
        slot = self.vocabulary.slot
        new: dict[str, str] = {} if slot in present else {slot: canonical(container.count)}
        percent, memory = self.vocabulary.percent, self.vocabulary.memory
        if percent is None or memory is None or percent not in present:
            return new, ()
        if container.memory is None:
            return new, ()
        new[memory] = canonical(container.memory // self.vocabulary.memory_factor)
        return new, (percent,)

    def _annotations(self, asked: str, digest: str) -> dict[str, str]:
        key = self.mode_key()
        return {
            key: str(self.choice.mode),
            MODE_SOURCE_KEY: str(self.choice.source),
            DECISION_KEY: digest,
            ASKED_KEY: asked,
        }

    def mode_key(self) -> str:
        """Return the annotation that carries the mode.

        vc-scheduler takes its own annotation as a hard constraint, so a mode that the Binding
        may still revise stands beside it.
        """
        volcano = self.pod.spec.scheduler_name in self.settings.volcano_schedulers
        revisable = self.choice.source is ModeSource.BEST
        if self.vocabulary.mode_key is None:
            return MODE_KEY
        if volcano and revisable and self.settings.volcano_mode is VolcanoMode.OPEN:
            return MODE_KEY
        return self.vocabulary.mode_key

    def _volumes(self) -> tuple[Entry, ...]:
        present = {volume.name for volume in self.pod.spec.volumes or ()}
        return tuple(
            [
                entry
                for entry in library_volumes(self.settings.host_root)
                if entry["name"] not in present
            ]
        )

    def warnings(self) -> Iterator[str]:
        """Yield warnings about a pod that is admitted."""
        if self.settings.privileged is Tolerance.WARN:
            for container in self.container_refs:
                for finding in tenant_checks.privileged_findings(container):
                    yield str(finding)
        if self.column is Column.UPSTREAM:
            for ref in self.container_refs:
                if ref.container.env_from:
                    yield f"{ref.place}: envFrom could override a variable of the device plugin"
        volcano = self.pod.spec.scheduler_name in self.settings.volcano_schedulers
        if volcano and self.vocabulary.slot not in self.vocabulary.resources:
            yield f"pod: vc-scheduler counts {self.vocabulary.name} requests as whole GPUs"
        if (self.pod.metadata.labels or {}).get(HAMI_WEBHOOK_LABEL) == "ignore":
            yield f"pod: the label {HAMI_WEBHOOK_LABEL} is not read; that of the namespace decides"
        yield from self._instance_warnings()
        yield from self._launcher_warnings()
        if self.pod.spec.resource_claims and not self._extender_asked():
            yield (
                "pod: its resourceClaims keep it on the first node that its scheduler tries, even "
                "if no GPU is free there; use a scheduler that asks our extender, or remove "
                "resourceClaims"
            )

    def _launcher_warnings(self) -> Iterator[str]:
        """Yield a warning for each container whose processes would see one of its GPUs each."""
        if self.choice.mode is not Mode.HAMI_CORE:
            return
        limited = {
            container.name
            for container in self.request.containers
            if container.count > 1 and not (self.request.library_off and container.whole)
        }
        for ref in self.container_refs:
            container = ref.container
            if container.name not in limited:
                continue
            names = (variable.name for variable in container.env or ())
            launcher = launcher_of(bytes(container.command), bytes(container.args), names)
            if launcher:
                yield (
                    f"{ref.place}: {launcher} gives each process one GPU by CUDA_VISIBLE_DEVICES, "
                    "but the interception library then counts all of them on the first GPU and its "
                    "limit; ask for one GPU per container, for whole GPUs with "
                    'vgpu-admission.io/library: "off", or for mode mig'
                )

    def _instance_warnings(self) -> Iterator[str]:
        """Yield a warning for each container that gets several MIG instances unasked."""
        if self.choice.mode is not Mode.MIG or self.choice.source is not ModeSource.ONLY:
            return
        for container in self.request.containers:
            if container.count > 1:
                yield (
                    f'container "{container.name}": only MIG can give it {container.count} GPUs '
                    "here; its instances cannot exchange data directly, and before driver R570 a "
                    "process sees one of them"
                )

    def _extender_asked(self) -> bool:
        """Say whether the scheduler of the pod learns from us where it fits, as far as we know.

        What a claim was allocated for stays allocated when a bind is refused (KEP-4381), so a
        scheduler that learns of it at the bind alone tries the same node again.
        """
        scheduler = self._scheduler() or self.pod.spec.scheduler_name
        volcano = scheduler in self.settings.volcano_schedulers
        return scheduler == OWN_SCHEDULER or (self.extender and not volcano)


def keys_of(asking: Iterable[ContainerRef]) -> dict[str, str]:
    """Return each container's annotation key: the one its variables read, else its index.

    A later injector may prepend containers, so a key that a container already reads is kept,
    and a newcomer takes the first free number from its own index on.
    """
    refs = list(asking)
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for container in refs:
        # An earlier pass leaves reserved names.
        key = _key_read(container) if container.reserved else ""
        if key and key[0] == container.letter and key not in taken:
            keys[container.container.name] = key
            taken.add(key)
    for container in refs:
        if container.container.name in keys:
            continue
        number, letter = container.index, container.letter
        while (key := f"{letter}{number}") in taken:
            number += 1
        keys[container.container.name] = key
        taken.add(key)
    return keys


def _key_read(container: ContainerRef) -> str:
    """Return the annotation key that a container's variables read, the least if several."""
    env = container.container.env or ()
    read = [own_key(variable) for variable in env if variable.value_from is not None]
    return min(filter(None, read), default="")
