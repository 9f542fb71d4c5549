"""The answers of ``decisions``, ``records`` and ``who``: ask the console, print."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self, TypeVar

from allocator.cli.terminal import show
from allocator.model.untrusted import zoned_time
from allocator.report.terminal_lines import WIDTH
from console.cli.get import AnyPrinter
from console.cli.session import CommandSession, QuestionError
from console.cluster.cluster_client import ConsoleTarget
from console.cluster.workload import parse_target
from console.get.listing import OutputFormat, document
from console.history.answers import RecordAnswer
from console.history.console_client import ConsoleClient, connect_console
from console.history.decision_rows import decision_listing
from console.history.decision_text import decision_document, decision_lines
from console.history.past_pod import past_document, past_lines, past_pod
from console.history.periods import rfc3339
from console.history.record_rows import record_listing
from console.history.use_rows import container_use_listing, gpu_use_listing
from console.history.who import person_document, person_text, who_listing
from console.records.query import LARGEST_PAGE
from console.records.rows import DecisionRow, RowPage
from kube.errors import ApiError

NOT_FOUND: Final = 404
NONE_RECORDED: Final = "No records found"
NONE_MEASURED: Final = "No figures found, or none that you may see."
_BLOCKS: Final = frozenset({OutputFormat.TABLE, OutputFormat.WIDE})
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryReader:
    """The console for one command; a warning is printed to whoever asked."""

    console: ConsoleClient
    warn: Callable[[str], None]

    def with_warn(self, warn: Callable[[str], None]) -> Self:
        """Return the same reader, which warns by *warn*."""
        return replace(self, warn=warn)

    def warn_of_missing_rights(self) -> None:
        """Do nothing: the console leaves out what a person may not see, and does not say what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """What is asked: fields of the console's filters, and how many rows at most."""

    namespace: str | None = None  # None: that of the context
    everywhere: bool = False
    filters: Mapping[str, str]
    limit: int
    width: int = WIDTH  # columns of a table, if that can be

    def parameters(self, reader: HistoryReader) -> dict[str, str]:
        """Return the parameters of the query."""
        chosen = {key: value for key, value in self.filters.items() if value}
        if not self.everywhere:
            chosen["namespace"] = self.namespace or reader.console.namespace
        return chosen


async def answer(
    session: CommandSession,
    console: ConsoleTarget,
    view: Callable[[HistoryReader], Awaitable[int]],
) -> int:
    """Let *view* ask the console and return its exit code; print errors and return 1."""

    async def work() -> int:
        async with connect_console(session.target, console, session.system) as client:
            return await view(HistoryReader(client, session.warn))

    return await session.guard(work())


async def decisions(reader: HistoryReader, printer: AnyPrinter, question: HistoryQuestion) -> int:
    """Print decisions, the latest first."""
    rows, more = await _rows(reader.console.decisions, question.parameters(reader), question.limit)
    listing = decision_listing(rows, datetime.now(UTC), spaces=question.everywhere)
    code = printer.print(listing, f"{NONE_RECORDED}.")
    _note_more(printer, len(rows), more=more)
    return code


async def records(reader: HistoryReader, printer: AnyPrinter, question: HistoryQuestion) -> int:
    """Print records, the latest first."""
    rows, more = await _rows(reader.console.records, question.parameters(reader), question.limit)
    width = None if printer.output is OutputFormat.WIDE else question.width
    listing = record_listing(rows, datetime.now(UTC), spaces=question.everywhere, width=width)
    code = printer.print(listing, f"{NONE_RECORDED}.")
    _note_more(printer, len(rows), more=more)
    return code


async def _rows(
    ask: Callable[[Mapping[str, str]], Awaitable[RowPage[T]]],
    parameters: Mapping[str, str],
    limit: int,
) -> tuple[list[T], bool]:
    """Return at most *limit* rows, page by page, and whether there are more."""
    rows: list[T] = []
    after = ""
    while len(rows) < limit:
        size = str(min(limit - len(rows), LARGEST_PAGE))
        page = await ask({**parameters, "limit": size, **({"after": after} if after else {})})
        rows += page.rows[: limit - len(rows)]
        after = page.after
        if not (after and page.rows):
            return rows, False
    return rows, True


def _note_more(printer: AnyPrinter, count: int, *, more: bool) -> None:
    if printer.output in _BLOCKS:
        printer.note([f"the latest {count}; --limit and --since show more"] if more else [])


async def who(reader: HistoryReader, printer: AnyPrinter, question: HistoryQuestion) -> int:
    """Print who holds GPUs and who asked for them, by namespace and person."""
    answer = await reader.console.usage(question.filters)
    space = question.namespace or reader.console.namespace
    rows = [row for row in answer.rows if question.everywhere or row.namespace == space]
    return printer.print(who_listing(rows), f"{NONE_RECORDED}.")


async def top_pods(reader: HistoryReader, printer: AnyPrinter, question: HistoryQuestion) -> int:
    """Print what containers use of what they hold, those that use most first."""
    answer = await reader.console.use(question.parameters(reader))
    listing = container_use_listing(answer.containers, spaces=question.everywhere)
    return printer.print(listing, NONE_MEASURED)


async def top_gpus(reader: HistoryReader, printer: AnyPrinter, nodes: Collection[str]) -> int:
    """Print what is promised and used of GPUs, of all nodes or some."""
    answer = await reader.console.use({})
    gpus = [gpu for gpu in answer.gpus if not nodes or gpu.node in nodes]
    return printer.print(gpu_use_listing(gpus), NONE_MEASURED)


async def decision(
    reader: HistoryReader, session: CommandSession, about: str, *, output: OutputFormat
) -> int:
    """Print one decision with the life of its pod: that of a digest, or the latest of a pod."""
    if about.startswith("pod/"):
        row = await _latest(reader, session, about.removeprefix("pod/"))
        digest, uid = row.digest, row.pod_uid
    else:
        digest, _, uid = about.partition("/")
    answer = await reader.console.decision(digest, uid)
    if output is OutputFormat.TABLE:
        show(decision_lines(answer), session.output)
    else:
        session.print([document(decision_document(answer), output)])
    return 0


async def person(
    reader: HistoryReader, session: CommandSession, pod: str, *, output: OutputFormat
) -> int:
    """Print who is behind a pod, and how that is known."""
    row = await _latest(reader, session, pod)
    if output is OutputFormat.TABLE:
        session.print([f"{row.namespace}/{row.pod}: {person_text(row)}"])
    else:
        session.print([document(person_document(row), output)])
    return 0


async def _latest(reader: HistoryReader, session: CommandSession, pod: str) -> DecisionRow:
    """Return the latest decision about the pod NAME or NAMESPACE/NAME."""
    space, _, name = pod.rpartition("/")
    space = space or session.namespace or reader.console.namespace
    page = await reader.console.decisions({"namespace": space, "pod": name, "limit": "1"})
    if not page.rows:
        raise QuestionError(
            f"no decision about pod {name!r} in {space} is recorded, or you may not see it"
        )
    return page.rows[0]


async def past(
    reader: HistoryReader, session: CommandSession, about: str, *, at: str, output: OutputFormat
) -> int:
    """Print what was known about a pod at the time *at*, in RFC 3339."""
    target, time = parse_target(about), zoned_time(at)
    if isinstance(target, str):
        raise QuestionError(target)
    if target.kind is not None:
        raise QuestionError(
            f"{about!r} is no pod, and --at asks about one pod; accepted: NAME, pod/NAME"
        )
    if time is None or time > datetime.now(UTC):
        raise QuestionError(f"--at {at} has not been yet; accepted: a time that has passed")
    space = target.namespace or session.namespace or reader.console.namespace
    # A console counts times before `until`, and the moment itself belongs to what was known.
    until = rfc3339(time + timedelta(milliseconds=1))
    answers = await _records_until(reader, until, namespace=space, pod=target.name)
    found = past_pod(answers, name=target.name, at=time)
    if found is None:
        raise QuestionError(
            f"no record of pod {target.name!r} in {space} from before {at} is stored,"
            " or you may not see it"
        )
    if output is OutputFormat.TABLE:
        show(past_lines(found), session.output)
    else:
        session.print([document(past_document(found), output)])
    return 0


async def _records_until(
    reader: HistoryReader, until: str, *, namespace: str, pod: str
) -> list[RecordAnswer]:
    """Return the latest records of a pod before *until*, and those of its request."""
    query = {"namespace": namespace, "pod": pod, "until": until, "limit": str(LARGEST_PAGE)}
    of_name = (await reader.console.records(query)).rows
    # The review that decides does not know the name of a pod that a controller makes.
    uid = next((u for one in of_name if (u := _text_of(one, "pod_uid"))), "")
    of_pod = [one for one in of_name if _text_of(one, "pod_uid") == uid]
    digest = next((d for one in of_pod if (d := _text_of(one, "digest"))), "")
    if not (uid and digest):
        return list(of_name)
    try:
        return [*of_name, *(await reader.console.decision(digest, uid)).records]
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return list(of_name)  # removed meanwhile


def _text_of(answer: RecordAnswer, name: str) -> str:
    value = answer.record.get(name)
    return value if isinstance(value, str) else ""
