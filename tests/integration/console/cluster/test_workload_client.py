"""Workloads over a real socket: which pods are their own, with a person's own rights."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.cli import explain
from console.cli.explain import AnswerOptions
from console.get.listing import OutputFormat
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.console.cli.test_session import POD, stored
from tests.integration.console.sessions import (
    kubeconfig,
    put,
    refusal_body,
    result,
    run_with_server,
    session,
)

APPS = "/apis/apps/v1/namespaces/team"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
PODS = "/api/v1/namespaces/team/pods"


def made(server: ApiServer, path: str, name: str, *, by: str = "", **spec: object) -> str:
    """Store an object that the one with uid *by* made, and return its own uid."""
    template = {"spec": stored(name, "team", POD)["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    written: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template, **spec},
    }
    if path.endswith("/pods"):
        written = stored(name, "team", POD)
    elif path.startswith(APPS):
        written |= {"apiVersion": "apps/v1", "kind": "Deployment"}
    written["metadata"]["labels"] = {"app": "web"}
    if by:
        written["metadata"]["ownerReferences"] = [{"uid": by, "kind": "Any", "name": "any"}]
    put(server, path, written)
    return str(server.objects.read(parsed(f"{path}/{name}"))["metadata"]["uid"])


async def why(
    server: ApiServer, folder: Path, about: str, *, output: OutputFormat = OutputFormat.JSON
) -> tuple[int, str, str]:
    commands = session(kubeconfig(folder, server.url))
    question = AnswerOptions(namespace=None, output=output)
    code = await commands.answer(
        lambda gather: explain.why(gather, commands, about, question=question)
    )
    return result(commands, code)


def test_pods_of_a_deployment_are_those_of_its_replica_sets(tmp_path: Path) -> None:
    """Others with the same labels are not: labels are a selector, owners are the truth."""

    async def scenario(server: ApiServer) -> None:
        web = made(server, f"{APPS}/deployments", "web", replicas=2)
        old = made(server, f"{APPS}/replicasets", "web-1", by=web)
        new = made(server, f"{APPS}/replicasets", "web-2", by=web)
        other = made(server, f"{APPS}/replicasets", "strange-1", by="somebody")
        for name, owner in (("web-1-a", old), ("web-2-b", new), ("strange-1-c", other)):
            made(server, PODS, name, by=owner)
        made(server, PODS, "alone")

        deployment = await why(server, tmp_path, "deploy/web")
        replica_set = await why(server, tmp_path, "rs/web-2")

        for (code, output, errors), names in (
            (deployment, ["web-1-a", "web-2-b"]),
            (replica_set, ["web-2-b"]),
        ):
            (item,) = json.loads(output)["items"]
            assert (code, errors) == (0, "")
            assert [item["name"], *item["alike"]] == names

    server = run_with_server(scenario, "n0")

    listed = [request for request in server.requests if request.path == PODS]
    assert {request.query["labelSelector"] for request in listed} == {"app=web"}
    assert {request.method for request in server.requests} == {"GET"}


def test_a_job_of_volcano_has_no_selector(tmp_path: Path) -> None:
    """Its pods are found by their owner all the same."""

    async def scenario(server: ApiServer) -> None:
        uid = made(server, JOBS, "gang", selector=None, tasks=[])
        made(server, PODS, "gang-worker-0", by=uid)

        code, output, _ = await why(server, tmp_path, "vcjob/gang")

        assert (code, json.loads(output)["states"]) == (0, {"Waiting": 1})

    run_with_server(scenario, "n0")


def test_without_pods_its_template_is_judged(tmp_path: Path) -> None:
    """A pod that was refused at admission exists nowhere; what was said stands at its maker."""

    async def scenario(server: ApiServer) -> None:
        web = made(server, f"{APPS}/deployments", "web", replicas=3)
        between = made(server, f"{APPS}/replicasets", "web-1", by=web)
        said = {
            "metadata": {"name": "web-1.1"},
            "involvedObject": {"uid": between},
            "type": "Warning",
            "reason": "FailedCreate",
            "message": "denied the request",
        }
        put(server, "/api/v1/namespaces/team/events", said)

        code, output, errors = await why(server, tmp_path, "deploy/web", output=OutputFormat.TABLE)

        assert (code, errors) == (0, "")
        first, _, whose, *_ = output.splitlines()
        assert first == "REFUSED   no pod is let in: denied the request"
        assert whose == "workload  Deployment team/web"
        assert "pods      none; 3 wanted\n" in output
        assert "FailedCreate: denied the request\n" in output
        assert "from      the stored Deployment, spec.template\n" in output
        assert output.count("REFUSED\n") == 1
        assert "FITS NOW" not in output

    run_with_server(scenario, "n0")


@pytest.mark.parametrize(
    ("about", "status", "body", "text"),
    [
        pytest.param(
            "deploy/web",
            404,
            refusal_body(404, "NotFound", 'deployments.apps "web" not found'),
            'Error from server (NotFound): deployments.apps "web" not found\n',
            id="no-such-object",
        ),
        pytest.param(
            "vcjob/web",
            404,
            b"404 page not found\n",
            'error: the server doesn\'t have a resource type "jobs.batch.volcano.sh"\n',
            id="no-such-kind",
        ),
        pytest.param(
            "rs/web",
            403,
            refusal_body(403, "Forbidden", 'cannot get resource "replicasets" in API group "apps"'),
            "Error from server (Forbidden): cannot get resource "
            '"replicasets" in API group "apps"\n',
            id="no-right",
        ),
        pytest.param(
            "job/web",
            200,
            b'{"metadata": {"name": "web"}, "spec": []}',
            'error: "web" cannot be read: Expected `object`, got `array` - at `$.spec`\n',
            id="no-workload",
        ),
    ],
)
def test_an_error_is_written_on_one_line(
    about: str, status: int, body: bytes, *, text: str, tmp_path: Path
) -> None:
    """As for a pod, by the name of its kind; nothing is printed."""

    async def scenario(server: ApiServer) -> None:
        server.answer_next(status, body=body)

        assert await why(server, tmp_path, about) == (1, "", text)

    run_with_server(scenario)


def test_what_cannot_be_read_between_hides_nothing_else(tmp_path: Path) -> None:
    """The command warns, and explains all other pods."""

    async def scenario(server: ApiServer) -> None:
        web = made(server, f"{APPS}/deployments", "web")
        between = made(server, f"{APPS}/replicasets", "web-1", by=web)
        made(server, f"{APPS}/replicasets", "odd", by=web, replicas="three")
        made(server, PODS, "web-1-a", by=between)

        code, output, errors = await why(server, tmp_path, "deploy/web")

        assert (code, json.loads(output)["pods"]) == (0, 1)
        assert errors.startswith('Warning: "odd" cannot be read: Expected `int | null`')

    run_with_server(scenario, "n0")
