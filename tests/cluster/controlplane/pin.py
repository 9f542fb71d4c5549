"""How a module here moves to another release: its replace directives are copied, never typed.

Run as `python -m tests.cluster.controlplane.pin kubernetes 1.36.3`, or with the versions of staging
modules that the release's own version does not tell: `… volcano 1.14.1 volcano.sh/apis=1.14.0`.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import TypedDict

from tests.cluster.controlplane import toolchain
from tests.cluster.controlplane.binaries import BINARIES, Module
from tests.cluster.controlplane.build import cache_folder, to_stderr
from tests.cluster.controlplane.toolchain import BuildError, Go


class _Target(TypedDict, total=False):
    Path: str
    Version: str


class _Replace(TypedDict):
    Old: _Target
    New: _Target


def pin(module: Module, release: str, staging: Mapping[str, str]) -> None:
    """Rewrite the module's go.mod and go.sum for another release of the same program.

    A release that wants a newer Go also wants its `godebug` line moved, which is done by hand.
    """
    go = toolchain.locate(module.needs_go, cache_folder(), to_stderr)
    path = module.released_as
    source = json.loads(_mod(go, module, "download", "-json", f"{path}@v{release}"))["GoMod"]
    parsed = json.loads(_mod(go, module, "edit", "-json", source))
    replaces: list[_Replace] = parsed["Replace"] or []
    go_mod = module.folder / "go.mod"
    kept = re.sub(r"^replace (\([^)]*\)|.*)\n", "", go_mod.read_text(), flags=re.MULTILINE)
    copied = sorted(_replacement(replace, release, staging) for replace in replaces)
    block = "\n".join(("replace (", *copied, ")", "")) if copied else ""
    go_mod.write_text(f"{kept.rstrip()}\n\n{block}")
    _mod(go, module, "edit", f"-require={path}@v{release}", "-fmt")
    _mod(go, module, "tidy")


def _mod(go: Go, module: Module, *arguments: str) -> str:
    answer = subprocess.run(
        [go.executable, "mod", *arguments],
        check=False,
        cwd=module.folder,
        env=toolchain.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    if answer.returncode:
        raise BuildError(f"go mod {arguments[0]} ended with {answer.returncode}")
    return answer.stdout


def _replacement(replace: _Replace, release: str, staging: Mapping[str, str]) -> str:
    old, new = replace["Old"]["Path"], replace["New"]
    if "Version" in new:
        return f"\t{old} => {new['Path']} {new['Version']}"
    # A path below ./staging exists only in the release's repository, not in its module. Kubernetes
    # publishes 1.36.3's staging modules as 0.36.3.
    return f"\t{old} => {old} v{staging.get(old) or re.sub('^1', '0', release)}"


def _main() -> int:
    modules = {binary.module.name: binary.module for binary in BINARIES.values()}
    parser = argparse.ArgumentParser(description=__doc__, prog="controlplane.pin")
    parser.add_argument("module", choices=sorted(modules))
    parser.add_argument("release")
    parser.add_argument("staging", nargs="*", metavar="path=version")
    chosen = parser.parse_args()
    staging = dict(item.split("=", 1) for item in chosen.staging)
    pin(modules[chosen.module], chosen.release, staging)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
