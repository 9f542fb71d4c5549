"""containerd's configuration, as far as it decides how containers get GPUs."""

from collections.abc import Iterable, Mapping
from typing import Final

from agent.core.nodefacts import Runtime

# The CRI plugin of configuration versions 2 and 3 (containerd 1.x and 2.x); both may be there.
_CRI: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_CDI_BY_DEFAULT: Final = 3  # this version and later
_CDI_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")

Table = Mapping[str, object]


def runtime_of(path: str, documents: Iterable[Table]) -> Runtime:
    """Return what the file at *path* and its imports say, of which later ones win."""
    whole: Table = {}
    for document in documents:
        whole = _merged(whole, document)
    plugins = _table(whole, "plugins")
    cri: Table = {}
    for name in reversed(_CRI):
        cri = _merged(cri, _table(plugins, name))
    kinds = _table(cri, "containerd")
    folders = cri.get("cdi_spec_dirs")
    return Runtime(
        path=path,
        runtimes=frozenset(_table(kinds, "runtimes")),
        default=str(kinds.get("default_runtime_name") or "runc"),
        cdi=_cdi(whole, cri),
        cdi_folders=tuple(map(str, folders)) if isinstance(folders, list) else _CDI_FOLDERS,
    )


def imports_of(document: Table) -> tuple[str, ...]:
    """Return the patterns of the files that a configuration imports."""
    imports = document.get("imports")
    return tuple(map(str, imports)) if isinstance(imports, list) else ()


def _cdi(whole: Table, cri: Table) -> bool | None:
    said = cri.get("enable_cdi")
    if isinstance(said, bool):
        return said
    version = whole.get("version")
    return True if isinstance(version, int) and version >= _CDI_BY_DEFAULT else None


def _table(of: Table, key: str) -> Table:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _merged(below: Table, above: Table) -> Table:
    both = {
        key: _merged(_table(below, key), _table(above, key))
        for key in below.keys() & above.keys()
        if isinstance(below[key], dict) and isinstance(above[key], dict)
    }
    return {**below, **above, **both}
