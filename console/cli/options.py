"""The options of the plugin's commands, and the messages for values that are not accepted."""

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Final, TypedDict, TypeVar, cast

import click

from allocator.catalog.injection import MOST_DEVICES
from allocator.cli.terminal import write_anything
from allocator.model.request import Mode
from allocator.model.units import WHOLE_GPU, CorePercent, MiB
from allocator.model.untrusted import quote
from console.cli.session import CommandSession
from console.cluster.cluster_client import ClusterTarget, ConsoleTarget
from console.explain.pod_amounts import ACCEPTED_MEMORY, ContainerAmounts, memory_of
from console.get.listing import OutputFormat
from console.history.periods import ACCEPTED, moment
from kube.config import Impersonation

ANY: Final = "any"
_OUTPUTS: Final = [str(output) for output in OutputFormat if output is not OutputFormat.TABLE]
_DOCUMENTS: Final = [str(OutputFormat.JSON), str(OutputFormat.YAML)]
MODES: Final = [str(Mode.MIG), str(Mode.HAMI_CORE), str(Mode.MPS)]  # that a pod may name
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0}
BARE_HELP: Final = "print no column headings"
WATCH_HELP: Final = "after the list, print the rows that are new or change, until interrupted"
REDRAW_HELP: Final = "stay, and print the list again every few seconds, until interrupted"
SORT_HELP: Final = "column to sort by, upper or lower case, including those of -o wide"


class _Seconds(click.ParamType[float]):
    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a duration as kubectl's own flag does: 30s, 2m, 500ms, or plain seconds."""
        text = str(value)
        number = text.rstrip("ms")
        unit = text[len(number) :] or "s"
        if unit in _UNITS and number.replace(".", "", 1).isdecimal() and float(number) > 0:
            return float(number) * _UNITS[unit]
        return self.fail(f"{text!r} is not a duration; accepted: 30s, 2m, 500ms", param, ctx)


class _Memory(click.ParamType[MiB]):
    name = "MiB"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> MiB:
        """Read an amount of memory."""
        memory = memory_of(str(value))
        if memory is None:
            text = f"{quote(str(value))} is not an amount of memory; accepted: {ACCEPTED_MEMORY}"
            return self.fail(text, param, ctx)
        return memory


class _Model(click.ParamType[str]):
    name = "name"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Read part of a product's name; empty text, a part of every name, is refused."""
        if not str(value).strip():
            return self.fail(
                '"" is not a model; accepted: part of a name, such as A100', param, ctx
            )
        return str(value)


class TimeParam(click.ParamType[str]):
    """An age such as 90m, or a time with its zone."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the time that *value* means, in RFC 3339."""
        time = moment(str(value), datetime.now(UTC))
        if time is None:
            text = f"{quote(str(value))} is neither an age nor a time; accepted: {ACCEPTED}"
            return self.fail(text, param, ctx)
        return time


class ClusterOptions(TypedDict):
    """The options that name a cluster, and who reads it."""

    kubeconfig: str | None
    context: str | None
    seconds: float
    system: str
    namespace: str | None
    user: str | None
    groups: tuple[str, ...]
    uid: str | None


def _session_of(options: ClusterOptions) -> CommandSession:
    target = ClusterTarget(
        kubeconfig=options["kubeconfig"],
        context=options["context"],
        seconds=options["seconds"],
        acting=impersonation_of(options["user"], options["groups"], uid=options["uid"]),
    )
    for stream in (sys.stdout, sys.stderr):
        write_anything(stream)
    return CommandSession(
        target=target,
        system=options["system"],
        namespace=options["namespace"],
        output=sys.stdout,
        errors=sys.stderr,
    )


def with_session(command: Callable[..., int]) -> Callable[..., None]:
    """Add the options that name a cluster; call *command* with a session, exit with its code."""

    @wraps(command)
    def run(**options: object) -> None:
        own = {key: options.pop(key) for key in ClusterOptions.__annotations__}
        session = _session_of(cast("ClusterOptions", own))
        sys.exit(command(session, **options))

    decorated: Callable[..., None] = run
    for option in (
        click.option(
            "--system-namespace",
            "system",
            default="vgpu-admission-system",
            show_default=True,
            help="namespace where vgpu-admission is installed",
        ),
        click.option(
            "--request-timeout",
            "seconds",
            type=_Seconds(),
            default="10s",
            show_default=True,
            help="time limit of each call to the API server",
        ),
        click.option("--as-uid", "uid", help="uid to impersonate, with --as"),
        click.option(
            "--as-group",
            "groups",
            multiple=True,
            help="group to impersonate, with --as; repeatable",
        ),
        click.option("--as", "user", help="user to impersonate"),
        click.option("--context", help="context of the kubeconfig"),
        click.option(
            "--kubeconfig", help="kubeconfig file; by default KUBECONFIG, then ~/.kube/config"
        ),
        click.option("-n", "--namespace", help="namespace; by default that of the context"),
    ):
        decorated = option(decorated)
    return decorated


def with_console(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that say where the console is; *command* gets a ``ConsoleTarget``."""

    @wraps(command)
    def run(session: CommandSession, **options: object) -> int:
        target = ConsoleTarget(
            url=cast("str | None", options.pop("url")),
            authorities=cast("str | None", options.pop("authorities")),
        )
        return command(session, console=target, **options)

    decorated: Callable[..., int] = run
    for option in (
        click.option(
            "--console-ca",
            "authorities",
            type=click.Path(exists=True, dir_okay=False),
            envvar="VGPU_CONSOLE_CA",
            help="file with the authorities of the console's certificate, as PEM",
        ),
        click.option(
            "--console",
            "url",
            metavar="URL",
            envvar="VGPU_CONSOLE",
            help="address of the console; by default a port-forward to its Service",
        ),
    ):
        decorated = option(decorated)
    return decorated


def impersonation_of(
    user: str | None, groups: Sequence[str], *, uid: str | None
) -> Impersonation | None:
    """Return who to act as, ``None`` for oneself; raises ``click.UsageError``."""
    if not user and (groups or uid):
        raise click.UsageError("--as-group and --as-uid need --as; accepted: --as USER with them")
    values = (user or "", uid or "", *groups)
    if any(not (value.isascii() and value.isprintable()) for value in values):
        raise click.UsageError("--as, --as-group and --as-uid take printable ASCII only")
    return Impersonation(user=user, groups=tuple(groups), uid=uid or "") if user else None


_Code = TypeVar("_Code", int, None)


class PrintOptions(TypedDict):
    """The options of every list."""

    output: str | None
    headed: bool
    column: str | None
    labels: str
    watch: bool


def with_output_options(
    columns: Sequence[str], *, watch_help: str = WATCH_HELP
) -> Callable[[Callable[..., _Code]], Callable[..., _Code]]:
    """Return a decorator that adds the options of a list with *columns* to a command."""
    choices = click.Choice(columns, case_sensitive=False)

    def decorate(command: Callable[..., _Code]) -> Callable[..., _Code]:
        for option in (
            click.option("-w", "--watch", is_flag=True, help=watch_help),
            click.option("--no-headers", "headed", flag_value=False, default=True, help=BARE_HELP),
            click.option("--sort-by", "column", metavar="COLUMN", type=choices, help=SORT_HELP),
            click.option(
                "-o",
                "--output",
                type=click.Choice(_OUTPUTS),
                help="output format; a table if not given",
            ),
        ):
            command = option(command)
        return command

    return decorate


labels = click.option(
    "-l", "--selector", "labels", default="", help="label selector, as of kubectl get"
)
document = click.option(
    "-o", "--output", type=click.Choice(_DOCUMENTS), help="output format; text if not given"
)


class AmountOptions(TypedDict):
    """The options that replace a manifest; ``None`` or empty where one was not given."""

    memory: MiB | None
    cores: int | None
    count: int | None
    mode: str | None
    model: tuple[str, ...]


def amounts(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that replace a manifest to *command*."""
    for option in (
        click.option(
            "--model",
            type=_Model(),
            multiple=True,
            help="part of a GPU model name, such as A100; repeatable",
        ),
        click.option("--mode", type=click.Choice([ANY, *MODES]), help="sharing mode"),
        click.option(
            "--count", type=click.IntRange(1, MOST_DEVICES), help="number of GPUs; 1 if not given"
        ),
        click.option(
            "--cores", type=click.IntRange(0, WHOLE_GPU), help="compute of each GPU, in percent"
        ),
        click.option("--memory", type=_Memory(), help="memory of each GPU; all of it if not given"),
    ):
        command = option(command)
    return command


def amounts_of(options: AmountOptions, files: Sequence[str]) -> ContainerAmounts | None:
    """Return the amounts in *options*, ``None`` where *files* are given instead.

    Raises ``click.UsageError`` where both are given, or neither.
    """
    given = [f"--{name}" for name, value in options.items() if value not in (None, ())]
    if files and given:
        text = f"-f {files[0]} cannot go with {given[0]}; accepted: manifests or amounts, not both"
        raise click.UsageError(text)
    if not files and not given:
        raise click.UsageError(f"nothing to fit was given; accepted: -f FILE, or {_EITHER}")
    if files:
        return None
    mode = options["mode"] or ANY
    return ContainerAmounts(
        memory=options["memory"],
        cores=CorePercent(options["cores"] or 0),
        count=options["count"] or 1,
        mode=None if mode == ANY else Mode(mode),
        models=options["model"],
    )


_EITHER: Final = ", ".join(f"--{name}" for name in AmountOptions.__annotations__)
