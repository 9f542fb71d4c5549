"""The command that writes the configuration of a scheduler from its Policy file of old."""

import sys

import click

from allocator.cli.files import Streams, UnusableError, problems_text, read
from allocator.config.scheduler_policy import MOST_BYTES, scheduler_configuration
from allocator.model.problem import Rejected
from allocator.model.untrusted import inert_lines
from allocator.report.document_text import document_text


@click.command("convert")
@click.argument("policy")
@click.option(
    "--kubeconfig",
    default="/etc/kubernetes/scheduler.conf",
    show_default=True,
    help="the scheduler's kubeconfig, on its own machine; it is only named, not read",
)
def convert(policy: str, kubeconfig: str) -> None:
    """Print the KubeSchedulerConfiguration that does what the file POLICY did.

    kube-scheduler 1.23 and newer has no --policy-config-file; give it the result with --config.
    POLICY is JSON or YAML, - for standard input. Exits with 1 where it cannot be converted.
    """
    sys.exit(answer(policy, kubeconfig, Streams.standard()))


def answer(policy: str, kubeconfig: str, streams: Streams) -> int:
    """Print the configuration, or what is wrong with the file, and return the exit code."""
    try:
        text = read(policy, streams.input, most=MOST_BYTES)
    except UnusableError as error:
        return _fail(str(error), streams)
    found = scheduler_configuration(text, kubeconfig=kubeconfig)
    if isinstance(found, Rejected):
        return _fail(problems_text(policy, found.problems), streams)
    streams.output.write(f"{document_text(found.value, yaml=True)}\n")
    return 0


def _fail(why: str, streams: Streams) -> int:
    streams.errors.write(f"error: {inert_lines(why)}\n")
    return 1
