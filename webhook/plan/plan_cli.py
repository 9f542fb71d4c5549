"""The plan command: reads manifests and a fleet file, prints what would become of each pod."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TextIO

from allocator.cli.files import (
    Streams,
    UnusableError,
    pods_of_all,
    problems_text,
    read,
    settings_of,
)
from allocator.cli.terminal import show
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.fleet_file import MAX_FLEET, load_fleet
from allocator.config.settings import Settings
from allocator.model.problem import Rejected
from allocator.model.untrusted import inert_lines
from allocator.placement.fleet import snapshot_of
from allocator.report.document_text import document_text
from allocator.report.feasibility import exit_code
from webhook.admission.context import AdmissionContext
from webhook.plan.plan import Plan, plans
from webhook.plan.plan_json import document
from webhook.plan.plan_text import lines
from webhook.review.pod_schema import Pod

ERROR: Final = 1  # the question could not be answered


class PlanOutput(StrEnum):
    """How plans are printed."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """What is asked: *files* may name folders, and standard input as ``-``."""

    files: Sequence[str]
    fleet: str
    settings: str | None = None
    output: PlanOutput = PlanOutput.TEXT


def answer(question: PlanInput, streams: Streams) -> int:
    """Print a plan for each pod and return the exit code that docs/plan.md describes.

    Where one file cannot be used, nothing is planned: half an answer would be mistaken for one.
    """
    try:
        context = surroundings(
            fleet=read(question.fleet, streams.input, most=MAX_FLEET),
            name=question.fleet,
            settings=settings_of(question.settings, streams),
        )
        pods = pods_of_all(question.files, Pod, streams)
    except UnusableError as error:
        streams.errors.write(f"error: {inert_lines(str(error))}\n")
        return ERROR
    found = plans(pods, context)
    _print(found, question.output, streams.output)
    return exit_code(one_plan.verdict for _, one_plan in found)


def surroundings(*, fleet: str, name: str, settings: Settings) -> AdmissionContext:
    """Return what decisions rest on, from the text of the fleet file *name*.

    The namespace is taken for one that admits hostPath volumes, as one without Pod Security
    labels does, and that allows a high priority. Raises :class:`UnusableError`.
    """
    loaded = load_fleet(fleet)
    if isinstance(loaded, Rejected):
        raise UnusableError(problems_text(name, loaded.problems))
    return AdmissionContext(
        settings=settings,
        snapshot=snapshot_of(loaded.value, version="file", complete=True),
        vocabularies=configured_vocabularies(settings, DeviceConfig()),
        host_paths=True,
        high_priority=True,
    )


def _print(found: Sequence[tuple[str, Plan]], output: PlanOutput, stream: TextIO) -> None:
    if output is not PlanOutput.TEXT:
        stream.write(f"{document_text(document(found), yaml=output is PlanOutput.YAML)}\n")
        return
    for number, (name, one_plan) in enumerate(found):
        if number:
            stream.write("\n")
        show(lines(one_plan, name), stream)
