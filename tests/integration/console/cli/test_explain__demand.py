"""What a namespace demands, read from a cluster by the commands that explain."""

from pathlib import Path

import pytest

from allocator.model.request import Mode
from allocator.model.units import MiB
from console.cli import explain
from console.cli.explain import AnswerOptions
from console.explain.pod_amounts import ContainerAmounts
from console.get.listing import OutputFormat
from tests.builders.pods import MEMORY, MODE, NUMBER, container, pod
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import kubeconfig, put, result, run_with_server, session

QUESTION = AnswerOptions(namespace="team", output=OutputFormat.TABLE)
DEMAND = "vgpu-admission.io/min-isolation"
LIMITS: dict[str, object] = {NUMBER: 1, MEMORY: 1000}


def namespace(server: ApiServer, demand: str) -> None:
    metadata = {"name": "team", "annotations": {DEMAND: demand}}
    put(server, "/api/v1/namespaces", {"metadata": metadata})


@pytest.mark.parametrize(
    ("demand", "text"),
    [("mig", "mode hami-core isolates less than mig"), ("hard", '"hard" on the namespace is none')],
)
def test_why_says_what_the_namespace_demands(tmp_path: Path, demand: str, text: str) -> None:
    """The node has room, and the bind is refused all the same."""

    async def scenario(server: ApiServer) -> None:
        namespace(server, demand)
        written = pod(container(limits=LIMITS), annotations={MODE: "hami-core"})
        written["metadata"] |= {"name": "p", "namespace": "team", "uid": "u"}
        put(server, "/api/v1/namespaces/team/pods", written | {"status": {"phase": "Pending"}})
        commands = session(kubeconfig(tmp_path, server.url))
        code = await commands.answer(
            lambda reader: explain.why(reader, commands, "p", question=QUESTION)
        )
        _, output, errors = result(commands, code)
        assert (code, errors) == (0, "")
        assert text in " ".join(output.split("\ntry ")[0].split()), output

    run_with_server(scenario, "n0")


def test_fit_refuses_what_the_namespace_does_not_admit(tmp_path: Path) -> None:
    """As the webhook would."""

    async def scenario(server: ApiServer) -> None:
        namespace(server, "mig")
        commands = session(kubeconfig(tmp_path, server.url))
        amounts = ContainerAmounts(memory=MiB(1000), mode=Mode.HAMI_CORE)
        code = await commands.answer(
            lambda reader: explain.fit_amounts(reader, commands, amounts, question=QUESTION)
        )
        _, output, _ = result(commands, code)
        assert code == 5
        assert f"remove {MODE} [IsolationTooWeak]" in " ".join(output.split())

    run_with_server(scenario, "n0")
