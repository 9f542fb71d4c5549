"""The answers of ``why``, ``fit`` and ``export``: gather, decide, print."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.cli.files import Streams, pods_of_all
from allocator.cli.terminal import show
from allocator.config.fleet_document import fleet_document
from allocator.report.feasibility import exit_code
from allocator.report.terminal_lines import Line
from allocator.report.together import PodOfFile
from console.cli.session import CommandSession, QuestionError
from console.cluster.pod import PodView
from console.cluster.reader_client import ClusterReader, NamespaceView
from console.cluster.snapshot import ClusterView
from console.cluster.workload import WorkloadKind, parse_target
from console.cluster.workload_client import workload
from console.explain import fit as fits
from console.explain import why_text, workload_why
from console.explain.fit import Fit, fit_document, fit_of, refused_fit
from console.explain.pod_amounts import ContainerAmounts, imagined_pod
from console.explain.why import PodFacts, PodWhy
from console.explain.why import why as explain_pod
from console.explain.why_json import why_document
from console.explain.workload_why import MOST_GROUPS, ExplainedGroup, WorkloadWhy, group_pods
from console.get.listing import OutputFormat, document


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """The options that ``why`` and ``fit`` share."""

    namespace: str | None  # None: the namespace of the context
    output: OutputFormat


async def why(
    reader: ClusterReader, session: CommandSession, about: str, *, question: AnswerOptions
) -> int:
    """Explain one pod, or those of a workload."""
    target = parse_target(about)
    if isinstance(target, str):
        raise QuestionError(target)
    namespace = target.namespace or question.namespace or reader.cluster.namespace
    if target.kind is not None:
        answer = await _workload(reader, target.kind, namespace=namespace, name=target.name)
        return _print_answer(
            session, workload_why.lines(answer), workload_why.document(answer), question=question
        )
    pod = await reader.pod(namespace, target.name)
    namespace_view = await reader.namespace(namespace)
    pod_why = await _explain(
        reader, pod, await reader.site(needed=False), namespace_view=namespace_view
    )
    return _print_answer(session, why_text.lines(pod_why), why_document(pod_why), question=question)


def _print_answer(
    session: CommandSession,
    lines: Iterable[Line],
    answer: dict[str, Any],
    *,
    question: AnswerOptions,
) -> int:
    """Print *lines* as text, or *answer* as JSON or YAML; return exit code 0."""
    if question.output is OutputFormat.TABLE:
        show(lines, session.output)
    else:
        session.print([document(answer, question.output)])
    return 0


async def _explain(
    reader: ClusterReader, pod: PodView, site: ClusterView, *, namespace_view: NamespaceView
) -> PodWhy:
    events = await reader.events(pod.namespace, pod.metadata.uid)
    return explain_pod(
        PodFacts(
            pod=pod,
            site=site,
            events=events,
            labels=namespace_view.labels,
            namespace=namespace_view.policy,
        )
    )


async def _workload(
    reader: ClusterReader, kind: WorkloadKind, *, namespace: str, name: str
) -> WorkloadWhy:
    resolved = await workload(reader, kind, namespace=namespace, name=name)
    namespace_view = await reader.namespace(namespace)
    site = await reader.site(needed=False)
    groups = group_pods(resolved.pods, site)
    explained_groups = [
        ExplainedGroup(
            group, await _explain(reader, group.pods[0], site, namespace_view=namespace_view)
        )
        for group in groups[:MOST_GROUPS]
    ]
    # Without the ledgers every pod would seem never to fit.
    templates = () if site.blind else resolved.templates
    pods = [PodOfFile(file="", number=0, made=made) for made in templates]
    answers = fits.fit_all(pods, site, policies={namespace: namespace_view.policy})
    return WorkloadWhy(
        workload=resolved,
        now=site.now,
        groups=groups,
        explained=tuple(explained_groups),
        fits=tuple(
            answer if resolved.refusal is None else refused_fit(answer, resolved.refusal.text)
            for _, answer in answers
        ),
    )


async def fit(
    reader: ClusterReader, session: CommandSession, files: Sequence[str], *, question: AnswerOptions
) -> int:
    """Print whether the pods of *files* would fit, and return the exit code that says so."""
    default = question.namespace or reader.cluster.namespace
    streams = Streams(input=sys.stdin.buffer, output=session.output, errors=session.errors)
    pods = pods_of_all(files, PodView, streams, namespace=default)
    site = await reader.site()
    policies = {
        name: (await reader.namespace(name)).policy for name in {pod.made.namespace for pod in pods}
    }
    answers = fits.fit_all(pods, site, policies=policies)
    return _print_fit(session, answers, question)


async def fit_amounts(
    reader: ClusterReader,
    session: CommandSession,
    amounts: ContainerAmounts,
    *,
    question: AnswerOptions,
) -> int:
    """Print whether one pod with *amounts* would fit, and return the exit code that says so."""
    namespace = question.namespace or reader.cluster.namespace
    site = await reader.site()
    policy = (await reader.namespace(namespace)).policy
    answer = fit_of(amounts.request, imagined_pod(namespace), site, policy=policy)
    return _print_fit(session, [("", answer)], question)


async def export_fleet(reader: ClusterReader, session: CommandSession, output: OutputFormat) -> int:
    """Print the nodes as a fleet file, and warn of those that it has no words for."""
    site = await reader.site()
    fleet = fleet_document(site.node(name) for name in site.ledgers)
    for sentence in fleet.left_out:
        session.warn(sentence)
    if not fleet.content["nodes"]:
        raise QuestionError("no GPU is known here; accepted: a cluster whose nodes report GPUs")
    session.print([document(fleet.content, output)])
    return 0


def _print_fit(
    session: CommandSession, answers: Sequence[tuple[str, Fit]], question: AnswerOptions
) -> int:
    lines: list[Line] = []
    for number, (file, answer) in enumerate(answers):
        lines += [()] if number else []
        lines += fits.lines(answer, file)
    _print_answer(session, lines, fit_document(answers), question=question)
    return exit_code(answer.verdict for _, answer in answers)
