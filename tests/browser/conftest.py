"""A browser and a console for the tests in it."""

import shutil
from collections.abc import Iterator

import pytest

from tests.browser.axe import AxeError, axe_source
from tests.browser.chromium import PROGRAM, Browser, chromium
from tests.cluster.controlplane.build import to_stderr
from tests.cluster.controlplane.toolchain import BuildError
from tests.cluster.gate import is_gate, missing
from tests.harness.console_site import console_app, serving
from tests.install.image import install


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Browser]:
    """Run Chromium; where the suite is the gate, Debian's is installed if there is none."""
    if shutil.which(PROGRAM) is None:
        if not is_gate():
            missing(f"no browser: apt-get install -y {PROGRAM}")
        try:
            install([PROGRAM], to_stderr)
        except BuildError as error:
            missing(f"no browser: {error}")
    with chromium() as running:
        yield running


@pytest.fixture
def browser(running_browser: Browser) -> Iterator[Browser]:
    """Return the browser; its tabs are closed after each test."""
    yield running_browser
    running_browser.close_tabs()


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """Serve a console with a day of records."""
    with serving(console_app()) as address:
        yield address


@pytest.fixture(scope="session")
def hostile_site() -> Iterator[str]:
    """Serve a console whose every record was written by a stranger."""
    with serving(console_app("hostile")) as address:
        yield address


@pytest.fixture(scope="session")
def axe() -> str:
    """Return axe-core."""
    try:
        return axe_source()
    except (AxeError, OSError) as error:
        missing(f"no axe-core: {error}")
