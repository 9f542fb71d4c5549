"""Commands over real sockets: what a person reads when something stands in their way."""

import asyncio
import json
from pathlib import Path

import pytest

from console.cli.get import ListSelection
from console.cluster.cluster_client import PAGE
from console.get.listing import OutputFormat
from tests.builders.gpunodes import gpu_node
from tests.builders.model import T4, nodes_of
from tests.fakes.api_objects import parsed
from tests.fakes.api_rules import Json
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import (
    GPU_NODES,
    NODES,
    SETTINGS,
    gpus,
    kubeconfig,
    nodes,
    pods,
    put,
    refusal_body,
    run_with_server,
    session,
)
from tests.unit.console.sites import machine

KUBE_SYSTEM = "/api/v1/namespaces/kube-system/configmaps"


def test_the_persons_own_token_is_used(tmp_path: Path) -> None:
    """It is the kubeconfig's, and every call only reads."""

    async def scenario(server: ApiServer) -> None:
        server.tokens = {"secret"}
        code, output, errors = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert (code, errors) == (0, "")
        assert output.splitlines()[1].startswith("n0/0")

    server = run_with_server(scenario, "n0")

    assert {request.method for request in server.requests} == {"GET"}


FORBIDDEN = (
    'gpunodes.vgpu-admission.io is forbidden: User "amy" cannot list resource "gpunodes" in API '
    'group "vgpu-admission.io" at the cluster scope'
)


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        pytest.param(
            403,
            refusal_body(403, "Forbidden", FORBIDDEN),
            f"Error from server (Forbidden): {FORBIDDEN}; the ClusterRole vgpu-reader grants it\n",
            id="forbidden",
        ),
        pytest.param(
            401,
            refusal_body(401, "Unauthorized", "Unauthorized"),
            "error: You must be logged in to the server (Unauthorized)\n",
            id="unauthorized",
        ),
        pytest.param(
            404,
            b"404 page not found\n",
            'error: the server doesn\'t have a resource type "gpunodes.vgpu-admission.io": '
            "vgpu-admission is not installed in this cluster, or its CRD is missing\n",
            id="no-crd",
        ),
        pytest.param(
            200,
            b"<html>",
            "Unable to connect to the server: list gpunodes: the answer is not a list\n",
            id="proxy",
        ),
    ],
)
def test_refusals_are_written_as_by_kubectl(
    status: int, body: bytes, *, text: str, tmp_path: Path
) -> None:
    """On standard error, with code 1, naming verb and resource; nothing else is printed."""

    async def scenario(server: ApiServer) -> None:
        server.answer_next(status, body=body)

        assert await gpus(session(kubeconfig(tmp_path, server.url))) == (1, "", text)

    run_with_server(scenario)


def test_what_may_not_be_read_is_left_out_aloud(tmp_path: Path) -> None:
    """A person without a right to Nodes or settings sees GPUs all the same."""

    async def scenario(server: ApiServer) -> None:
        put(server, GPU_NODES, gpu_node(nodes_of(1, T4, name="n0")))
        gpu_nodes = json.dumps({"items": [server.objects.at(parsed(GPU_NODES))[0]]}).encode()
        server.answer_next(200, body=gpu_nodes)
        server.answer_next(403, body=refusal_body(403, "Forbidden", "cannot list nodes"))
        server.answer_next(
            403, body=refusal_body(403, "Forbidden", "cannot get configmaps"), times=2
        )

        code, output, errors = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert (code, len(output.splitlines())) == (0, 2)
        assert errors == (
            "Warning: you may not read Nodes, the ConfigMap vgpu-admission-settings, the ConfigMap"
            " volcano-vgpu-device-config, so the answer goes without; ask an administrator for the"
            " ClusterRole vgpu-reader\n"
        )

    run_with_server(scenario)


def test_settings_that_cannot_be_used_are_a_warning(tmp_path: Path) -> None:
    """The webhook keeps its last good ones, which nobody else knows: the defaults are assumed."""

    async def scenario(server: ApiServer) -> None:
        bad = {"metadata": {"name": "vgpu-admission-settings"}, "data": {"settings.yaml": "x: 1"}}
        put(server, SETTINGS, bad)

        code, _, errors = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert code == 0
        assert errors.startswith("Warning: settings.yaml: ")
        assert errors.endswith("the defaults are assumed\n")

    run_with_server(scenario, "n0")


def test_a_vocabulary_that_is_not_served_is_a_warning(tmp_path: Path) -> None:
    """The answer goes without its names, and says which two settings share one."""

    async def scenario(server: ApiServer) -> None:
        ours = {"settings.yaml": "vocabularies: [volcano, hami]"}
        put(server, SETTINGS, {"metadata": {"name": "vgpu-admission-settings"}, "data": ours})
        plugins = {"device-config.yaml": "resourceCoreName: nvidia.com/gpucores"}
        named = {"name": "volcano-vgpu-device-config"}
        put(server, KUBE_SYSTEM, {"metadata": named, "data": plugins})

        code, _, errors = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert code == 0
        assert 'hami.resourceCoreName: "nvidia.com/gpucores" is resourceCoreName in' in errors
        assert errors.count("Warning") == 1

    run_with_server(scenario, "n0")


def test_a_cluster_is_read_page_by_page(tmp_path: Path) -> None:
    """No answer holds more than a page, and no node is lost between two."""
    names = [f"n{number:04}" for number in range(PAGE + 1)]

    async def scenario(server: ApiServer) -> None:
        code, output, _ = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert (code, len(output.splitlines())) == (0, len(names) + 1)

    server = run_with_server(scenario, *names)

    assert {request.query.get("limit") for request in server.requests if request.path == NODES} == {
        str(PAGE)
    }


def test_a_list_that_the_server_has_forgotten_is_read_anew(tmp_path: Path) -> None:
    """410 in the middle of the pages is no error that a person could do anything about."""

    async def scenario(server: ApiServer) -> None:
        stale = {"items": [gpu_node(nodes_of(1, T4, name="old"))], "metadata": {"continue": "gone"}}
        server.answer_next(200, body=json.dumps(stale).encode())

        code, output, _ = await gpus(session(kubeconfig(tmp_path, server.url)))

        assert (code, [line.split()[0] for line in output.splitlines()[1:]]) == (0, ["n0/0"])

    run_with_server(scenario, "n0")


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """As kubectl says it."""
    commands = session(kubeconfig(tmp_path, "http://127.0.0.1:1"))

    code, output, errors = asyncio.run(gpus(commands))

    assert (code, output) == (1, "")
    assert errors.startswith("Unable to connect to the server: ")


def test_a_server_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """Each call ends after --request-timeout."""

    async def play() -> tuple[int, str, str]:
        left = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()  # until the caller goes
            writer.close()
            left.set()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            config = kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
            answer = await gpus(session(config, seconds=0.2))
            async with asyncio.timeout(10):
                await left.wait()
        return answer

    assert asyncio.run(play()) == (
        1,
        "",
        "Unable to connect to the server: list gpunodes: no answer within 0.2 s\n",
    )


def test_a_node_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """As for any object that kubectl is asked for by name."""

    async def scenario(server: ApiServer) -> None:
        config = kubeconfig(tmp_path, server.url)

        code, output, errors = await gpus(session(config), "nowhere")

        assert (code, output) == (1, "")
        assert errors == 'error: gpunodes.vgpu-admission.io "nowhere" not found\n'

    run_with_server(scenario, "n0")


def test_an_empty_cluster_is_named(tmp_path: Path) -> None:
    """Nobody should wonder whether the command did anything."""

    async def scenario(server: ApiServer) -> None:
        assert await gpus(session(kubeconfig(tmp_path, server.url))) == (
            0,
            "",
            "No resources found\n",
        )

    run_with_server(scenario)


POD = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3k"}


def stored(name: str, namespace: str, limits: dict[str, str]) -> Json:
    main = {"name": "main", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "namespace": namespace, "uid": name}
    return {"metadata": metadata, "spec": {"containers": [main]}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        pytest.param(ListSelection(namespace="team"), ["asks"], id="namespace"),
        pytest.param(ListSelection(), ["team/asks", "team-b/other"], id="everywhere"),
        pytest.param(ListSelection(namespace="team", names=("asks",)), ["asks"], id="by-name"),
        pytest.param(ListSelection(namespace="team", names=("plain",)), [], id="asks-for-nothing"),
    ],
)
def test_pods_are_picked_by_namespace_and_name(
    which: ListSelection, expected: list[str], tmp_path: Path
) -> None:
    """Only those that ask for a share of a GPU; others are no error either."""

    async def scenario(server: ApiServer) -> None:
        for name, namespace, limits in (
            ("asks", "team", POD),
            ("plain", "team", {"cpu": "1"}),
            ("other", "team-b", POD),
        ):
            put(server, f"/api/v1/namespaces/{namespace}/pods", stored(name, namespace, limits))
        commands = session(kubeconfig(tmp_path, server.url))

        code, output, errors = await pods(commands, which)

        lines = [line.split() for line in output.splitlines()[1:]]
        shown = [line[0] if which.namespace else "/".join(line[:2]) for line in lines]
        assert (code, shown) == (0, expected)
        nothing = "No resources found in team namespace.\n"
        assert errors == ("" if expected else nothing)

    run_with_server(scenario, "n0")


def test_a_pod_by_a_name_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A slip of the finger must not look like a pod without GPU."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))

        assert await pods(commands, ListSelection(namespace="team", names=("nobody",))) == (
            1,
            "",
            'error: pods "nobody" not found\n',
        )

    run_with_server(scenario, "n0")


def test_a_pod_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    """It hides no other, and nobody reads how our program failed."""

    async def scenario(server: ApiServer) -> None:
        put(server, "/api/v1/namespaces/team/pods", stored("asks", "team", POD))
        odd = stored("odd", "team", POD) | {"spec": {"containers": None, "nodeName": 7}}
        put(server, "/api/v1/namespaces/team/pods", odd)
        commands = session(kubeconfig(tmp_path, server.url))

        code, output, errors = await pods(commands, ListSelection(namespace="team"))

        assert (code, [line.split()[0] for line in output.splitlines()[1:]]) == (0, ["asks"])
        assert errors.startswith('Warning: pod "odd" cannot be read: ')

    run_with_server(scenario, "n0")


def test_a_table_of_nodes_says_under_it_why_some_are_closed(tmp_path: Path) -> None:
    """On standard error, and in no document, which has the reason in a field of its own."""

    async def scenario(server: ApiServer) -> None:
        for number in range(12):
            name = f"closed-{number:02}"
            put(server, GPU_NODES, gpu_node(nodes_of(1, T4, name=name), closed="why \x1b[31m"))
            put(server, NODES, machine(name))
        config = kubeconfig(tmp_path, server.url)
        code, output, errors = await nodes(session(config), OutputFormat.TABLE)

        assert code == 0
        assert len(output.splitlines()) == 14
        lines = errors.splitlines()
        assert lines[0] == "closed-00 takes no new pods: why ?[31m"
        assert lines[10:] == ["2 more take no new pods; see --output=wide"]
        _, document, nothing = await nodes(session(config), OutputFormat.JSON)
        assert nothing == ""
        assert json.loads(document)["items"][0]["out"] == "why ?[31m"

    run_with_server(scenario, "open")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("n0",), ["n0/0", "n0/1"]),
        (("n0/1",), ["n0/1"]),
        (("GPU-n1-0",), ["n1/0"]),
        (("n0/0", "n1"), ["n0/0", "n1/0", "n1/1"]),
        (("n0/1", "n0/1"), ["n0/1"]),
    ],
)
def test_gpus_are_picked_by_names_that_lists_print(
    names: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    """By node, by the name of the GPU, or by its UUID, which -o wide shows."""

    async def scenario(server: ApiServer) -> None:
        for name in ("n0", "n1"):
            put(server, GPU_NODES, gpu_node(nodes_of(2, T4, name=name)))

        code, output, _ = await gpus(session(kubeconfig(tmp_path, server.url)), *names)

        assert (code, [line.split()[0] for line in output.splitlines()[1:]]) == (0, expected)

    run_with_server(scenario)


@pytest.mark.parametrize("name", ["n0/7", "n9/0", "GPU-nowhere", "n0/", "/0", "n0/0/0"])
def test_a_gpu_that_is_not_there_is_an_error(name: str, tmp_path: Path) -> None:
    """Never an empty table, nor another GPU."""

    async def scenario(server: ApiServer) -> None:
        code, output, errors = await gpus(session(kubeconfig(tmp_path, server.url)), name)

        assert (code, output) == (1, "")
        assert f'"{name}" not found' in errors

    run_with_server(scenario, "n0")


def test_pods_are_picked_by_namespace_and_name_in_one(tmp_path: Path) -> None:
    """As they are printed beside each other in `layout` and `why`."""

    async def scenario(server: ApiServer) -> None:
        for namespace in ("team", "team-b"):
            put(server, f"/api/v1/namespaces/{namespace}/pods", stored("asks", namespace, POD))
        commands = session(kubeconfig(tmp_path, server.url))

        code, output, _ = await pods(commands, ListSelection(names=("team-b/asks",)))

        assert code == 0
        assert [line.split()[:2] for line in output.splitlines()[1:]] == [["team-b", "asks"]]

    run_with_server(scenario, "n0")
