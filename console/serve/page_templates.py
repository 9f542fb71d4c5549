"""Templates: pages as HTML; everything is escaped, and nothing hides or turns text round."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from allocator.model.untrusted import inert_lines
from console.cluster.live_informer import OUTDATED_SECONDS
from console.get.table import span
from console.pages.parts.blocks import PageView
from console.pages.parts.cell import absolute, stamp
from console.serve.page_services import PageServices
from console.serve.static_files import StaticFile

FOLDER: Final = Path(__file__).parents[1] / "templates"
NAVIGATION: Final = (
    ("/", "Overview"),
    ("/decisions", "Decisions"),
    ("/waiting", "Waiting"),
    ("/pods", "Pods"),
    ("/nodes", "Nodes"),
    ("/fit", "Fit"),
    ("/namespaces", "Namespaces"),
    ("/records", "Records"),
    ("/settings", "Settings"),
    ("/health", "Health"),
    ("/reasons", "Reasons"),
)


class PageTemplates:
    """The templates of all pages."""

    def __init__(self, files: Mapping[str, StaticFile], services: PageServices) -> None:
        """Load the templates; *files* are those that each page names."""
        environment = Environment(
            loader=FileSystemLoader(FOLDER, encoding="utf-8"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_inert,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals |= {
            "navigation": NAVIGATION,
            "style": files["console.css"].address,
            "script": files["console.js"].address,
            "icon": files["icon.svg"].address,
            "version": services.version,
            "notice": services.notice,
            "login": services.login,
            "stamp": stamp,
            "absolute": absolute,
        }
        self._age = services.age
        self._page = environment.get_template("page.html")

    def html(self, view: PageView, *, path: str, user: str) -> str:
        """Return *view*, the page at *path*, as HTML for *user*."""
        outdated = outdated_text(self._age())
        return self._page.render(view=view, active=_section(path), user=user, outdated=outdated)


def outdated_text(age: float | None) -> str:
    """Return what to say of a picture of the cluster that is *age* seconds old; empty: nothing."""
    if age is None or age <= OUTDATED_SECONDS:
        return ""
    return (
        f"What these pages say of the cluster is {span(timedelta(seconds=age))} old: the API server"
        " has told the console nothing since. Records are not affected."
    )


def _inert(value: object) -> object:
    """Return *value*; what would turn text round or hide in it is replaced.

    Only plain strings are values; the product of a macro is markup, escaped already.
    """
    return inert_lines(value) if type(value) is str else value


def _section(path: str) -> str:
    """Return the page of the navigation to which *path* belongs."""
    return f"/{path.split('/')[1]}"
