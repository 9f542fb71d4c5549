"""Answers from the cluster as it is now: nodes, pods, and what would fit."""

import asyncio
import hmac
from collections import defaultdict
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

from allocator.config.manifest import pods_in
from allocator.config.namespace_policy import ANY_MODE, NamespacePolicy
from allocator.model.problem import Problem, Rejected
from allocator.report.together import PodOfFile
from console.cluster.pod import PodView
from console.cluster.snapshot import ClusterView
from console.explain.fit import Fit, fit_all, fit_of
from console.explain.pod_amounts import ContainerAmounts, imagined_pod
from console.languages.messages import message
from console.pages.fleet.fit import FitForm, PastedManifest, fit_form, fit_page
from console.pages.fleet.node import MOST_RECORDS, node_page
from console.pages.fleet.nodes import hidden_nodes, nodes_page
from console.pages.fleet.pods import pods_page
from console.pages.parts.blocks import PageQuestion, PageView
from console.pages.parts.visible import visible_pods
from console.records.query import PageRequest, RecordFilter
from console.serve.page_answers import Answer, ProblemError, needed_cluster, visible_cluster
from console.serve.page_services import PageServices

MOST_BODY: Final = 512 * 1024  # bytes of a form
MOST_TEMPLATES: Final = 16  # of a manifest that are judged
_FORM: Final = "application/x-www-form-urlencoded"


async def nodes(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of nodes."""
    site = visible_cluster(services, question)
    return await asyncio.to_thread(nodes_page, question, site)


async def node(services: PageServices, question: PageQuestion, request: Request) -> PageView:
    """Return the page of one node."""
    site, name = visible_cluster(services, question), request.path_params["name"]
    if site.blind:
        return hidden_nodes(message("Node"))
    if name not in site.ledgers:
        text = message("No node of this name has GPUs that vgpu-admission knows of.")
        raise ProblemError(HTTPStatus.NOT_FOUND, text)
    wanted, page = RecordFilter(node=name), PageRequest(size=MOST_RECORDS)
    scope = question.viewer.scope
    records = await asyncio.to_thread(services.store.records, scope, wanted, page)
    return await asyncio.to_thread(node_page, question, site, name, records=records.rows)


async def pods(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of pods."""
    site = visible_cluster(services, question)
    seen = visible_pods(question.viewer.scope, services.pods())
    return await asyncio.to_thread(pods_page, question, site, seen)


async def fit(services: PageServices, question: PageQuestion, _request: Request) -> PageView:
    """Return the page of Fit, with an answer where the form has values."""
    form = fit_form(question.values)
    if form.amounts is None:
        return fit_page(question, form, ())
    site = needed_cluster(services)  # who may not see nodes is told amounts, but no names
    answer = await asyncio.to_thread(_fit_amounts, form, form.amounts, site)
    return fit_page(question, form, (answer,))


def _fit_amounts(form: FitForm, amounts: ContainerAmounts, site: ClusterView) -> Fit:
    return fit_of(amounts.request, imagined_pod(form.values["ns"] or "default"), site)


async def manifest_fit(
    services: PageServices, question: PageQuestion, request: Request
) -> PageView:
    """Return the page of Fit for a manifest that was pasted; nothing of it is kept."""
    values = await _form(request)
    if not hmac.compare_digest(
        values.get("csrf", "").encode(errors="replace"), question.viewer.csrf.encode()
    ):
        problem = message("The form is too old, or was not made for you; open Fit again.")
        raise ProblemError(HTTPStatus.FORBIDDEN, problem)
    text = values.get("manifest", "").replace("\r\n", "\n")
    site = needed_cluster(services)  # who may not see nodes is told amounts, but no names
    answers, problems = await asyncio.to_thread(_fit_manifest, text, site)
    pasted = PastedManifest(text=text, problems=problems)
    return fit_page(question, fit_form({}), answers, pasted=pasted)


def _fit_manifest(text: str, site: ClusterView) -> tuple[tuple[Fit, ...], tuple[Problem, ...]]:
    """Return what would become of the pods of a manifest, or what is wrong with it."""
    loaded = pods_in(text, PodView)
    if isinstance(loaded, Rejected):
        return (), loaded.problems
    if len(loaded.value) > MOST_TEMPLATES:
        what = f"{len(loaded.value)} pod templates"
        return (), (Problem(path="manifest", what=what, accepted=f"at most {MOST_TEMPLATES}"),)
    policies: defaultdict[str, NamespacePolicy] = defaultdict(lambda: ANY_MODE)
    pods = [PodOfFile(file="", number=0, made=made) for made in loaded.value]
    answers = fit_all(pods, site, policies=policies)
    return tuple(answer for _, answer in answers), loaded.warnings


async def _form(request: Request) -> dict[str, str]:
    """Return the values of a form, the last of each name; raises :class:`ProblemError`."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise ProblemError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message("A form is sent as {type}.", type=_FORM)
        )
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            text = message("The form has more than {most} bytes.", most=MOST_BODY)
            raise ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
    try:
        pairs = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        text = message("The form cannot be read; accepted: at most 16 fields in UTF-8.")
        raise ProblemError(HTTPStatus.BAD_REQUEST, text) from error
    return {key: values[-1] for key, values in pairs.items()}


ANSWERS: Final[tuple[tuple[str, Answer], ...]] = (
    ("/nodes", nodes),
    ("/nodes/{name}", node),
    ("/pods", pods),
    ("/fit", fit),
)
