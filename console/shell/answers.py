"""The answers of ``why`` and ``fit``: gather, decide, print."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from allocator.core.lines import Line
from allocator.core.outlook import exit_code
from allocator.shell.files import named, pods_of, read
from allocator.shell.terminal import show
from console.core import fit as fits
from console.core import whytext, workloadwhy
from console.core.amounts import Amounts, imagined
from console.core.fit import Fit, fit_document, fit_of
from console.core.listing import Output, document
from console.core.pod import Pod
from console.core.site import Site
from console.core.why import Facts, Why
from console.core.why import why as explained
from console.core.whydocument import why_document
from console.core.workload import Kind
from console.core.workload import named as asked_about
from console.core.workloadwhy import MOST_GROUPS, Explained, WorkloadWhy, grouped
from console.shell.gather import Gatherer, Namespace
from console.shell.session import AskedError, Session
from console.shell.workloads import workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How an answer is wanted; ``None`` is the namespace of the context."""

    namespace: str | None
    output: Output


async def why(gather: Gatherer, session: Session, about: str, *, question: Question) -> int:
    """Explain one pod, or those of a workload."""
    found = asked_about(about)
    if isinstance(found, str):
        raise AskedError(found)
    namespace = question.namespace or gather.cluster.namespace
    if found.kind is not None:
        told = await _workload(gather, found.kind, namespace=namespace, name=found.name)
        return _shown(
            session, workloadwhy.lines(told), workloadwhy.document(told), question=question
        )
    pod = await gather.pod(namespace, found.name)
    its = await gather.namespace(namespace)
    one = await _explained(gather, pod, await gather.site(needed=False), its=its)
    return _shown(session, whytext.lines(one), why_document(one), question=question)


def _shown(
    session: Session, lines: Iterable[Line], found: dict[str, Any], *, question: Question
) -> int:
    """Print an answer as *lines*, or what it was *found* to be as a document."""
    if question.output is Output.TABLE:
        show(lines, session.output)
    else:
        session.print([document(found, question.output)])
    return 0


async def _explained(gather: Gatherer, pod: Pod, site: Site, *, its: Namespace) -> Why:
    events = await gather.events(pod.namespace, pod.metadata.uid)
    return explained(Facts(pod=pod, site=site, events=events, labels=its.labels, prefer=its.prefer))


async def _workload(gather: Gatherer, kind: Kind, *, namespace: str, name: str) -> WorkloadWhy:
    found = await workload(gather, kind, namespace=namespace, name=name)
    its = await gather.namespace(namespace)
    site = await gather.site(needed=False)
    groups = grouped(found.pods, site)
    told = [
        Explained(group, await _explained(gather, group.pods[0], site, its=its))
        for group in groups[:MOST_GROUPS]
    ]
    # Who may not read ledgers would be told that nothing ever fits.
    sought = () if site.blind else found.templates
    return WorkloadWhy(
        workload=found,
        now=site.now,
        groups=groups,
        explained=tuple(told),
        fits=tuple(fits.fit(made, site, prefer=its.prefer) for made in sought),
    )


async def fit(
    gather: Gatherer, session: Session, files: Sequence[str], *, question: Question
) -> int:
    """Say whether the pods of *files* would fit, and return the exit code that says so."""
    default = question.namespace or gather.cluster.namespace
    pods = [
        (named(file), made)
        for file in files
        for made in pods_of(
            file, read(file, sys.stdin.buffer), Pod, namespace=default, errors=session.errors
        )
    ]
    site = await gather.site()
    prefers = {
        name: (await gather.namespace(name)).prefer for name in {made.namespace for _, made in pods}
    }
    found = [(file, fits.fit(made, site, prefer=prefers[made.namespace])) for file, made in pods]
    return _fitted(session, found, question)


async def fit_amounts(
    gather: Gatherer, session: Session, amounts: Amounts, *, question: Question
) -> int:
    """Say the same of one pod that asks for *amounts*."""
    namespace = question.namespace or gather.cluster.namespace
    site = await gather.site()
    prefer = (await gather.namespace(namespace)).prefer
    found = fit_of(amounts.request, imagined(namespace), site, prefer=prefer)
    return _fitted(session, [("", found)], question)


def _fitted(session: Session, found: Sequence[tuple[str, Fit]], question: Question) -> int:
    lines: list[Line] = []
    for number, (file, one) in enumerate(found):
        lines += [()] if number else []
        lines += fits.lines(one, file)
    _shown(session, lines, fit_document(found), question=question)
    return exit_code(one.verdict for _, one in found)
