"""The rewritten pod: what a decided request adds to each container, and what forbids it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from allocator.catalog.injection import (
    ASKED_KEY,
    DECISION_KEY,
    MODE_KEY,
    MODE_SOURCE_KEY,
    MOUNTS,
    VARIABLES,
    Column,
)
from allocator.catalog.vocabularies import Vocabulary
from allocator.core.quantity import canonical
from allocator.core.settings import Injection, NodeAgent, Policy, Settings, VolcanoMode
from allocator.core.wording import shown
from allocator.model.decision import Finding, ModeChoice, Source
from allocator.model.request import ContainerRequest, Mode, PodRequest
from webhook.core import hygiene, prior
from webhook.core.inject import VOLUMES, Amounts, mounts, own_key, same_mount, variables
from webhook.core.outcome import Asked
from webhook.core.patch import ContainerIntent, Entry, Intent
from webhook.core.review import Container, Pod

_VOLUME_ROWS: Final = frozenset(row.name for row in VARIABLES if row.volumes)
_VOID_ENV: Final = tuple(variables(Column.VOID, Amounts(key=""), volumes=False))
_COLUMN_OF: Final = {
    Mode.MIG: Column.MIG,
    Mode.HAMI_CORE: Column.HAMI_CORE,
    Mode.MEMORY_ONLY: Column.MEMORY_ONLY,
}


@dataclass(frozen=True, slots=True)
class Spot:
    """A container with its place in the pod; *kind* is the field of the spec that holds it."""

    kind: str
    index: int
    container: Container

    @property
    def place(self) -> str:
        """Return where it is, in words."""
        word = "container" if self.kind == "containers" else "init container"
        return f'{word} "{shown(self.container.name)}"'

    @property
    def field(self) -> str:
        """Return where it is, as a path."""
        return f"spec.{self.kind}[{self.index}]"

    @property
    def letter(self) -> str:
        """Return what its annotation key begins with."""
        return "c" if self.kind == "containers" else "i"


def spots(pod: Pod) -> Iterator[Spot]:
    """Yield the containers that CREATE may carry, init containers first."""
    for index, container in enumerate(pod.spec.init_containers or ()):
        yield Spot("initContainers", index, container)
    for index, container in enumerate(pod.spec.containers):
        yield Spot("containers", index, container)


def blind(spot: Spot) -> hygiene.Subject:
    """Return *spot* as a container that asked for no GPU."""
    return hygiene.Subject(
        container=spot.container, place=spot.place, field=spot.field, column=Column.VOID
    )


def blinded(spot: Spot) -> ContainerIntent | None:
    """Hide all GPUs from a container, unless it is blind already or another plugin's client."""
    container = spot.container
    if any(present.name == "NVIDIA_VISIBLE_DEVICES" for present in container.env or ()):
        return None
    limits = container.resources.limits if container.resources is not None else None
    if limits is not None and any(name.startswith("nvidia.com/") for name in limits):
        return None
    return ContainerIntent(kind=spot.kind, index=spot.index, env=_VOID_ENV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Everything that the rewriting of one pod rests on.

    ``resources`` holds what each asking container showed when it was received, and
    ``host_paths`` whether its namespace admits hostPath volumes; ``None`` is unknown.
    """

    pod: Pod
    request: PodRequest
    choice: ModeChoice
    vocabulary: Vocabulary
    settings: Settings
    resources: Mapping[str, Mapping[str, str]]
    host_paths: bool | None

    @property
    def column(self) -> Column:
        """Return how its asking containers are treated."""
        if self.settings.node_agent is NodeAgent.UPSTREAM:
            return Column.UPSTREAM
        if self.choice.source is Source.BEST:
            return Column.OPEN
        return _COLUMN_OF[self.choice.mode]

    @property
    def mounting(self) -> bool:
        """Say whether the webhook mounts the library, or leaves it to the agent.

        Pod Security at baseline or above refuses hostPath volumes, so an unknown namespace
        is left to the agent, which needs none.
        """
        if self.column not in MOUNTS or self.settings.injection is Injection.AGENT:
            return False
        return self.settings.injection is Injection.WEBHOOK or self.host_paths is True

    def intent(self, asked: Asked, digest: str) -> tuple[Intent, list[Finding]]:
        """Return the intended change and all that forbids it."""
        column, mounting = self.column, self.mounting
        asking = {container.name: container for container in self.request.containers}
        everyone = list(spots(self.pod))
        keys = keys_of(spot for spot in everyone if spot.container.name in asking)
        findings = self._pod_findings()
        changes: list[ContainerIntent] = []
        for spot in everyone:
            container = asking.get(spot.container.name)
            if container is None:
                subject, change = blind(spot), blinded(spot)
            else:
                subject = self._subject(spot, container, key=keys[spot.container.name])
                change = self._change(spot, container, subject, mounting=mounting)
            findings += hygiene.variables(subject)
            findings += hygiene.mounts(subject)
            if self.settings.privileged is Policy.REFUSE:
                findings += hygiene.privileged(subject)
            if change is not None:
                changes.append(change)
        intent = Intent(
            annotations=self._annotations(asked, digest),
            volumes=self._volumes() if column in MOUNTS and mounting else (),
            containers=tuple(changes),
        )
        return intent, findings

    def _pod_findings(self) -> list[Finding]:
        return [
            *hygiene.annotations(self.pod),
            *hygiene.placement(self.pod),
            *hygiene.volumes(self.pod),
        ]

    def _subject(self, spot: Spot, container: ContainerRequest, *, key: str) -> hygiene.Subject:
        """Return *spot* with all that we would write into it, volumes or not.

        A namespace's policy may change between two passes, so what a mounting pass wrote is
        recognised by one that does not mount.
        """
        factor = self.vocabulary.memory_factor
        amounts = Amounts(
            key=key,
            count=container.count,
            memory=container.memory,
            cores=container.cores,
            units=(container.memory or 0) // factor,
            pod_units=sum(c.memory or 0 for c in self.request.containers) // factor,
        )
        return hygiene.Subject(
            container=spot.container,
            place=spot.place,
            field=spot.field,
            column=self.column,
            key=key,
            env=variables(self.column, amounts, volumes=True),
            mounts=mounts(self.column, container.name),
        )

    def _change(
        self, spot: Spot, container: ContainerRequest, subject: hygiene.Subject, *, mounting: bool
    ) -> ContainerIntent | None:
        """Return what is still missing in one asking container."""
        present = {variable.name for variable in spot.container.env or ()}
        env = tuple(
            entry
            for entry in subject.env
            if entry["name"] not in present and (mounting or entry["name"] not in _VOLUME_ROWS)
        )
        wanted = subject.mounts if mounting else ()
        standing = spot.container.volume_mounts or ()
        new = tuple(e for e in wanted if not any(same_mount(m, e) for m in standing))
        resources, removed = self._resources(container)
        if not (env or new or resources or removed):
            return None
        return ContainerIntent(
            kind=spot.kind,
            index=spot.index,
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

    def _annotations(self, asked: Asked, digest: str) -> dict[str, str]:
        key = self.mode_key()
        return {
            key: self.choice.mode,
            MODE_SOURCE_KEY: self.choice.source,
            DECISION_KEY: digest,
            ASKED_KEY: prior.encoded(asked),
        }

    def mode_key(self) -> str:
        """Return the annotation that carries the mode.

        vc-scheduler takes its own annotation as a hard constraint, so a mode that the Binding
        may still revise stands beside it.
        """
        volcano = self.pod.spec.scheduler_name in self.settings.volcano_schedulers
        revisable = self.choice.source is Source.BEST
        if self.vocabulary.mode_key is None:
            return MODE_KEY
        if volcano and revisable and self.settings.volcano_mode is VolcanoMode.OPEN:
            return MODE_KEY
        return self.vocabulary.mode_key

    def _volumes(self) -> tuple[Entry, ...]:
        standing = {volume.name for volume in self.pod.spec.volumes or ()}
        return tuple(entry for entry in VOLUMES if entry["name"] not in standing)

    def warnings(self) -> Iterator[str]:
        """Yield what the user should know although the pod passes."""
        if self.settings.privileged is Policy.WARN:
            for spot in spots(self.pod):
                for finding in hygiene.privileged(blind(spot)):
                    yield str(finding)
        if self.column is Column.UPSTREAM:
            for spot in spots(self.pod):
                if spot.container.env_from:
                    yield f"{spot.place}: envFrom could carry a reserved variable past the plugin"
        volcano = self.pod.spec.scheduler_name in self.settings.volcano_schedulers
        if volcano and self.vocabulary.mode_key is None:
            yield f"pod: vc-scheduler counts {self.vocabulary.name} requests as whole GPUs"


def keys_of(asking: Iterable[Spot]) -> dict[str, str]:
    """Return each container's annotation key: the one its variables read, else its index.

    A later injector may prepend containers, so a key that a container already reads is kept,
    and a newcomer takes the first free number from its own index on.
    """
    everyone = list(asking)
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for spot in everyone:
        read = {key for variable in spot.container.env or () if (key := own_key(variable))}
        key = min(read, default="")
        if key and key[0] == spot.letter and key not in taken:
            keys[spot.container.name] = key
            taken.add(key)
    for spot in everyone:
        if spot.container.name in keys:
            continue
        number = spot.index
        while f"{spot.letter}{number}" in taken:
            number += 1
        keys[spot.container.name] = f"{spot.letter}{number}"
        taken.add(f"{spot.letter}{number}")
    return keys
