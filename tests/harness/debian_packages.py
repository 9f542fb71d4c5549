"""What of Debian's packages the tests need and this machine lacks.

``python -m tests.harness.debian_packages`` installs it where the suite is the gate, before any test
runs: installing takes longer than one test may, and tests that run side by side would wait for
each other. Elsewhere it names what is missing, and the tests that need it are skipped.
"""

import shutil
import sys
from typing import Final

from tests.browser.chromium import PROGRAM
from tests.cluster.controlplane.build import to_stderr
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import is_gate
from tests.harness import postgres, prometheus
from tests.install.image import install, missing_packages

_BY_PROGRAM: Final = {PROGRAM: PROGRAM, **dict.fromkeys(prometheus.PROGRAMS, prometheus.PACKAGE)}


def lacking() -> list[str]:
    """Return the names of the packages that this machine lacks."""
    names = {package for program, package in _BY_PROGRAM.items() if shutil.which(program) is None}
    if not postgres.is_installed():
        names.add(postgres.PACKAGE)
    return sorted(names | set(missing_packages()))


def main() -> int:
    """Install or name what is lacking; return the exit code."""
    packages = lacking()
    if packages and not is_gate():
        to_stderr(f"tests skip what needs these: apt-get install -y {' '.join(packages)}")
    elif packages:
        try:
            install(packages, to_stderr)
        except BuildError as error:
            to_stderr(str(error))  # the tests that need them fail, and say so
    return 0


if __name__ == "__main__":
    sys.exit(main())
