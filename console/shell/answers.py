"""The answers of ``why`` and ``fit``: gather, decide, print."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from allocator.core.outlook import exit_code
from allocator.shell.files import named, pods_of, read
from allocator.shell.terminal import show
from console.core import fit as fits
from console.core import whytext
from console.core.fit import fit_document
from console.core.listing import Output, document
from console.core.pod import Pod
from console.core.why import Facts
from console.core.why import why as explained
from console.core.whydocument import why_document
from console.shell.gather import Gatherer
from console.shell.session import AskedError, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """How an answer is wanted; ``None`` is the namespace of the context."""

    namespace: str | None
    output: Output


async def why(gather: Gatherer, session: Session, name: str, *, question: Question) -> int:
    """Explain one pod."""
    kind, _, rest = name.rpartition("/")
    if kind not in {"", "pod", "pods", "po"} or not rest:
        raise AskedError(f'"{name}" is no pod; accepted: NAME or pod/NAME')
    namespace = question.namespace or gather.cluster.namespace
    pod = await gather.pod(namespace, rest)
    its = await gather.namespace(namespace)
    facts = Facts(
        pod=pod,
        site=await gather.site(needed=False),
        events=await gather.events(namespace, pod.metadata.uid),
        labels=its.labels,
        prefer=its.prefer,
    )
    told = explained(facts)
    if question.output is Output.TABLE:
        show(whytext.lines(told), session.output)
    else:
        session.print([document(why_document(told), question.output)])
    return 0


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
    if question.output is not Output.TABLE:
        session.print([document(fit_document(found), question.output)])
    else:
        for number, (file, one) in enumerate(found):
            session.print([""] if number else [])
            show(fits.lines(one, file), session.output)
    return exit_code(one.verdict for _, one in found)
