"""Templates: pages as HTML; everything is escaped, and nothing hides or turns text round."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from jinja2 import Template

from console.cluster.live_informer import OUTDATED_SECONDS
from console.languages.choice import CHOICES, LanguageChoice
from console.languages.messages import message
from console.languages.template_files import language_environment
from console.pages.parts.blocks import PageQuestion, PageView
from console.pages.parts.cell import absolute, stamp
from console.pages.parts.durations import duration
from console.serve.page_services import PageServices
from console.serve.static_files import StaticFile

NAVIGATION: Final = (
    ("/", message("Overview")),
    ("/decisions", message("Decisions")),
    ("/waiting", message("Waiting")),
    ("/pods", message("Pods")),
    ("/nodes", message("Nodes")),
    ("/fit", message("Fit")),
    ("/namespaces", message("Namespaces")),
    ("/records", message("Records")),
    ("/settings", message("Settings")),
    ("/health", message("Health")),
    ("/reasons", message("Reasons")),
)


class PageTemplates:
    """The templates of all pages, once for each language and each way to choose it."""

    def __init__(self, files: Mapping[str, StaticFile], services: PageServices) -> None:
        """Load the templates; *files* are those that each page names."""
        common = {
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
        self._pages: dict[LanguageChoice, Template] = {}
        for choice in CHOICES:
            environment = language_environment(choice)
            environment.globals |= common
            self._pages[choice] = environment.get_template("page.html")

    def html(self, view: PageView, question: PageQuestion) -> str:
        """Return *view*, the answer to *question*, as HTML."""
        choice = question.language
        return self._pages[choice].render(
            view=view,
            active=_section(question.path),
            user=question.viewer.user,
            outdated=outdated_text(self._age()),
            other=question.in_language(choice.other),
        )


def outdated_text(age: float | None) -> str:
    """Return what to say of a picture of the cluster that is *age* seconds old; empty: nothing."""
    if age is None or age <= OUTDATED_SECONDS:
        return ""
    return message(
        "What these pages say of the cluster is {duration} old: the API server has told the"
        " console nothing since. Records are not affected.",
        duration=duration(timedelta(seconds=age)),
    )


def _section(path: str) -> str:
    """Return the page of the navigation to which *path* belongs."""
    return f"/{path.split('/')[1]}"
