"""Whether a container runtime reads CDI documents, by containerd's configuration and version."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from agent.doctor.facts import Runtime

# The CRI plugin of configuration versions 3, 2 and 1; each containerd reads the older ones too.
_CRI: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_MERGES_SINCE: Final = 2  # this version of containerd and later merges sections key by key
# Configurations of this version and later are read only by that containerd.
_OWN_FORMAT_SINCE: Final = 3
_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
Table = Mapping[str, object]


def runtime_of(
    path: str, documents: Sequence[Table], *, major: int | None = None
) -> Runtime | None:
    """Return the configuration at *path*: *documents* are that file and those it imports.

    *major* is the version of containerd, by default the oldest that reads such a file. ``None``
    where no kubelet is served with it, because its CRI plugin is disabled.
    """
    version = documents[0].get("version")
    own_format = isinstance(version, int) and version >= _OWN_FORMAT_SINCE
    merges = own_format if major is None else major >= _MERGES_SINCE
    plugins: Table = {}
    for document in documents:
        if not _disabled_plugins(document).isdisjoint(_CRI):
            return None
        above = _table(document, "plugins")
        plugins = _merge(plugins, above) if merges else {**plugins, **above}
    cri: Table = {}
    for name in reversed(_CRI):
        cri = _merge(cri, _table(plugins, name))
    kinds, folders = _table(cri, "containerd"), cri.get("cdi_spec_dirs")
    cdi = cri.get("enable_cdi")
    return Runtime(
        path=path,
        runtimes=frozenset(_table(kinds, "runtimes")),
        default=str(kinds.get("default_runtime_name") or "runc"),
        cdi=cdi if isinstance(cdi, bool) else own_format or None,
        cdi_folders=tuple(map(str, folders)) if isinstance(folders, list) else _CDI_FOLDERS,
    )


def imports_of(document: Table) -> tuple[str, ...]:
    """Return the patterns of the files that a configuration imports."""
    imports = document.get("imports")
    return tuple(map(str, imports)) if isinstance(imports, list) else ()


def _disabled_plugins(document: Table) -> frozenset[str]:
    names = document.get("disabled_plugins")
    return frozenset(map(str, names)) if isinstance(names, list) else frozenset()


def _table(of: Table, key: str) -> Table:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def _merge(below: Table, above: Table) -> Table:
    both = {
        key: _merge(_table(below, key), _table(above, key))
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return {**below, **above, **both}


_VERSION: Final = re.compile(r"(containerd|cri-o)://v?(\d+)\.(\d+)", re.ASCII)
# The first releases that read CDI documents by default, and those that do if configured to.
_CDI_BY_DEFAULT_SINCE: Final = {"containerd": (2, 0), "cri-o": (1, 23)}
_CDI_IF_ENABLED_SINCE: Final = (1, 7)


def containerd_major(runtime: str) -> int | None:
    """Return the first number of containerd's version; ``None`` for any other runtime."""
    match = _VERSION.match(runtime)
    return int(match[2]) if match is not None and match[1] == "containerd" else None


def reads_cdi(runtime: str, configured: Iterable[Runtime] = ()) -> bool:
    """Say whether the runtime of ``nodeInfo.containerRuntimeVersion`` reads our CDI documents.

    *configured* are the configurations of containerd that the node has, where it can be seen. All
    that say something must agree: what Allocate answers is dropped without a word by one that does
    not read CDI, and ends the pod where it reads it elsewhere.
    """
    match = _VERSION.match(runtime)
    if match is None:
        return False
    version = int(match[2]), int(match[3])
    default = version >= _CDI_BY_DEFAULT_SINCE[match[1]]
    if match[1] != "containerd" or version < _CDI_IF_ENABLED_SINCE:
        return default
    readable = [
        runtime_configuration
        for runtime_configuration in configured
        if not runtime_configuration.problem
    ]
    enabled = (
        all(
            default if runtime_configuration.cdi is None else runtime_configuration.cdi
            for runtime_configuration in readable
        )
        if readable
        else default
    )
    return enabled and all(runtime_configuration.finds_ours for runtime_configuration in readable)
