"""ContainerRef: containers with their place in a pod, and whether they need a closer look."""

from collections.abc import Sequence
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from typing import Final

from allocator.catalog.reserved_paths import RESERVED_PATHS
from allocator.model.untrusted import escaped
from allocator.model.value import Value
from webhook.admission.injection import OWN_VOLUMES, RESERVED_NAMES
from webhook.review.pod_schema import Container, Pod

_WORDS: Final = MappingProxyType(
    {
        "containers": "container",
        "initContainers": "init container",
        "ephemeralContainers": "ephemeral container",
    }
)
# Every path that could hide a reserved one: itself or above it, or below it.
_ABOVE: Final = frozenset(
    reserved.path[:end] or "/"
    for reserved in RESERVED_PATHS
    for end, character in enumerate(f"{reserved.path}/")
    if character == "/"
)
_LONGEST: Final = 256  # characters of a path that is worth remembering
_BELOW: Final = tuple(f"{reserved.path}/" for reserved in RESERVED_PATHS)


class ContainerRef(Value, frozen=True):  # built far faster than a frozen dataclass
    """A container with its place: *kind* is the field of the spec that holds it, at *index*.

    ``reserved`` are the reserved names among its explicit variables, and ``near`` says that it
    mounts something at, above or below a reserved path. Nearly always there are none.
    """

    kind: str
    index: int
    container: Container
    reserved: frozenset[str]
    near: bool

    @property
    def place(self) -> str:
        """Return where it is, in words."""
        return f'{_WORDS[self.kind]} "{escaped(self.container.name)}"'

    @property
    def field(self) -> str:
        """Return where it is, as a path."""
        return f"spec.{self.kind}[{self.index}]"

    @property
    def letter(self) -> str:
        """Return what its annotation key begins with."""
        return "c" if self.kind == "containers" else "i"


def container_refs_of(kind: str, containers: Sequence[Container]) -> list[ContainerRef]:
    """Return the *containers* that the field *kind* of a spec holds, each with its place."""
    return [
        ContainerRef(
            kind, index, container, _reserved_variables(container), _may_hide_library(container)
        )
        for index, container in enumerate(containers)
    ]


def container_refs(pod: Pod) -> list[ContainerRef]:
    """Return the containers that CREATE may carry, init containers first."""
    spec = pod.spec
    main = container_refs_of("containers", spec.containers)
    first = spec.init_containers
    return [*container_refs_of("initContainers", first), *main] if first else main


def normal(path: str) -> str:
    """Return *path* as the kernel will read it, cheaply where it is in order already."""
    if path.startswith("/") and "//" not in path and "/." not in path and path[-1] != "/":
        return path
    return normpath("/" + path.lstrip("/"))


def _reserved_variables(container: Container) -> frozenset[str]:
    return RESERVED_NAMES.intersection([variable.name for variable in container.env or ()])


def _may_hide_library(container: Container) -> bool:
    for mount in container.volume_mounts or ():
        path = mount.mount_path
        if len(path) > _LONGEST or _hides(path) or mount.name in OWN_VOLUMES:
            return True
    return False


@lru_cache(maxsize=1024)  # pods mount at the same few paths, again and again
def _hides(path: str) -> bool:
    straight = normal(path)
    return straight in _ABOVE or straight.startswith(_BELOW)
