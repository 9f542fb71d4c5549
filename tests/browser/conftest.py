"""A browser and a console for the tests in it."""

from collections.abc import Iterator

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from console.languages.choice import KEY, language_choice, with_language
from console.languages.messages import message
from console.languages.template_files import language_environment
from console.serve.static_files import static_files
from tests.browser.axe import AxeError, axe_source
from tests.browser.chromium import Browser, chromium
from tests.cluster.gate import missing
from tests.harness.console_site import console_app, serving
from tests.harness.debian_packages import BROWSER, require


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Browser]:
    """Run Chromium; where the suite is the gate, Debian's is installed if there is none."""
    require(BROWSER)
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
def measured_site() -> Iterator[str]:
    """Serve a console with a Prometheus, and the page on which people log in."""
    files = static_files()

    async def login(request: Request) -> HTMLResponse:
        choice = language_choice(request.query_params.get(KEY, ""), "")
        pages = language_environment(choice)
        values = {
            "other": with_language("/login", choice.other),
            "style": files["console.css"].address,
            "csrf": "c",
            "following": "/",
            "longest": 9,
        }
        problem = message("The API server does not know this token, or it has expired.")
        return HTMLResponse(pages.get_template("login.html").render(**values, problem=problem))

    app = console_app("measured")
    app.router.routes.append(Route("/login", login))
    with serving(app) as address:
        yield address


@pytest.fixture(scope="session")
def axe() -> str:
    """Return axe-core."""
    try:
        return axe_source()
    except (AxeError, OSError) as error:
        missing(f"no axe-core: {error}")
