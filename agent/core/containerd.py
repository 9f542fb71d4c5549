"""containerd's configuration, as far as it decides how containers get GPUs.

Of the files that it imports a later one wins. containerd 1 takes the whole section of a plugin from
it, containerd 2 what it names alone (mergeConfig in cmd/containerd/server/config/config.go).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from agent.core.nodefacts import Runtime

# The CRI plugin of configuration versions 3, 2 and 1; each containerd reads the older ones too.
_CRI: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_SECOND: Final = 2  # this version of containerd and later merges sections key by key
_ITS_OWN: Final = 3  # this version of a configuration and later is read by that containerd alone
_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")

Table = Mapping[str, object]


def runtime_of(
    path: str, documents: Sequence[Table], *, major: int | None = None
) -> Runtime | None:
    """Return what the file at *path* says, the first of *documents*, with those that it imports.

    *major* is the version of containerd, by default the oldest that reads such a file. ``None``
    where no kubelet is served with it, because its CRI plugin is disabled.
    """
    version = documents[0].get("version")
    own = isinstance(version, int) and version >= _ITS_OWN
    merges = own if major is None else major >= _SECOND
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
        cdi=cdi if isinstance(cdi, bool) else own or None,
        cdi_folders=tuple(map(str, folders)) if isinstance(folders, list) else _CDI_FOLDERS,
    )


def imports_of(document: Table) -> tuple[str, ...]:
    """Return the patterns of the files that a configuration imports."""
    imports = document.get("imports")
    return tuple(map(str, imports)) if isinstance(imports, list) else ()


def _disabled_plugins(document: Table) -> frozenset[str]:
    found = document.get("disabled_plugins")
    return frozenset(map(str, found)) if isinstance(found, list) else frozenset()


def _table(of: Table, key: str) -> Table:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _merge(below: Table, above: Table) -> Table:
    both = {
        key: _merge(_table(below, key), _table(above, key))
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return {**below, **above, **both}
