"""The answers of ``why`` and ``fit``: gather, decide, print."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.cli.files import display_name, pods_of, read
from allocator.cli.terminal import show
from allocator.report.feasibility import exit_code
from allocator.report.terminal_lines import Line
from console.cli.session import AskedError, CommandSession
from console.cluster.pod import PodView
from console.cluster.reader_client import ClusterReader, NamespaceView
from console.cluster.snapshot import ClusterView
from console.cluster.workload import WorkloadKind
from console.cluster.workload import parse_target as asked_about
from console.cluster.workload_client import workload
from console.explain import fit as fits
from console.explain import why_text, workload_why
from console.explain.fit import Fit, fit_document, fit_of
from console.explain.pod_amounts import ContainerAmounts, imagined_pod
from console.explain.why import PodFacts, PodWhy
from console.explain.why import why as explained
from console.explain.why_json import why_document
from console.explain.workload_why import MOST_GROUPS, ExplainedGroup, WorkloadWhy, group_pods
from console.get.listing import OutputFormat, document


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How an answer is wanted; ``None`` is the namespace of the context."""

    namespace: str | None
    output: OutputFormat


async def why(
    gather: ClusterReader, session: CommandSession, about: str, *, question: AnswerOptions
) -> int:
    """Explain one pod, or those of a workload."""
    found = asked_about(about)
    if isinstance(found, str):
        raise AskedError(found)
    namespace = question.namespace or gather.cluster.namespace
    if found.kind is not None:
        told = await _workload(gather, found.kind, namespace=namespace, name=found.name)
        return _print_answer(
            session, workload_why.lines(told), workload_why.document(told), question=question
        )
    pod = await gather.pod(namespace, found.name)
    its = await gather.namespace(namespace)
    one = await _explain(gather, pod, await gather.site(needed=False), its=its)
    return _print_answer(session, why_text.lines(one), why_document(one), question=question)


def _print_answer(
    session: CommandSession,
    lines: Iterable[Line],
    found: dict[str, Any],
    *,
    question: AnswerOptions,
) -> int:
    """Print an answer as *lines*, or what it was *found* to be as a document."""
    if question.output is OutputFormat.TABLE:
        show(lines, session.output)
    else:
        session.print([document(found, question.output)])
    return 0


async def _explain(
    gather: ClusterReader, pod: PodView, site: ClusterView, *, its: NamespaceView
) -> PodWhy:
    events = await gather.events(pod.namespace, pod.metadata.uid)
    return explained(
        PodFacts(pod=pod, site=site, events=events, labels=its.labels, prefer=its.prefer)
    )


async def _workload(
    gather: ClusterReader, kind: WorkloadKind, *, namespace: str, name: str
) -> WorkloadWhy:
    found = await workload(gather, kind, namespace=namespace, name=name)
    its = await gather.namespace(namespace)
    site = await gather.site(needed=False)
    groups = group_pods(found.pods, site)
    explained_groups = [
        ExplainedGroup(group, await _explain(gather, group.pods[0], site, its=its))
        for group in groups[:MOST_GROUPS]
    ]
    # Who may not read ledgers would be told that nothing ever fits.
    sought = () if site.blind else found.templates
    return WorkloadWhy(
        workload=found,
        now=site.now,
        groups=groups,
        explained=tuple(explained_groups),
        fits=tuple(fits.fit(made, site, prefer=its.prefer) for made in sought),
    )


async def fit(
    gather: ClusterReader, session: CommandSession, files: Sequence[str], *, question: AnswerOptions
) -> int:
    """Say whether the pods of *files* would fit, and return the exit code that says so."""
    default = question.namespace or gather.cluster.namespace
    pods = [
        (display_name(file), made)
        for file in files
        for made in pods_of(
            file, read(file, sys.stdin.buffer), PodView, namespace=default, errors=session.errors
        )
    ]
    site = await gather.site()
    prefers = {
        name: (await gather.namespace(name)).prefer for name in {made.namespace for _, made in pods}
    }
    found = [(file, fits.fit(made, site, prefer=prefers[made.namespace])) for file, made in pods]
    return _print_fit(session, found, question)


async def fit_amounts(
    gather: ClusterReader,
    session: CommandSession,
    amounts: ContainerAmounts,
    *,
    question: AnswerOptions,
) -> int:
    """Say the same of one pod that asks for *amounts*."""
    namespace = question.namespace or gather.cluster.namespace
    site = await gather.site()
    prefer = (await gather.namespace(namespace)).prefer
    found = fit_of(amounts.request, imagined_pod(namespace), site, prefer=prefer)
    return _print_fit(session, [("", found)], question)


def _print_fit(
    session: CommandSession, found: Sequence[tuple[str, Fit]], question: AnswerOptions
) -> int:
    lines: list[Line] = []
    for number, (file, one) in enumerate(found):
        lines += [()] if number else []
        lines += fits.lines(one, file)
    _print_answer(session, lines, fit_document(found), question=question)
    return exit_code(one.verdict for _, one in found)
