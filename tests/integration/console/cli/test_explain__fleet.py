"""The fleet of a cluster as a file, from the command that writes it to the one that reads it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from console.cli import explain
from console.get.listing import OutputFormat
from tests.builders.gpunodes import entry, gpu_node
from tests.builders.model import T4, nodes_of, soft_grant
from tests.fakes.api_server import ApiServer
from tests.integration.console.sessions import (
    GPU_NODES,
    NODES,
    kubeconfig,
    put,
    result,
    run_with_server,
    session,
)
from tests.integration.webhook.commands import vgpu
from tests.unit.console.sites import machine

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        resources: {limits: {volcano.sh/vgpu-memory: 8000}}
"""


@pytest.mark.parametrize("output", [OutputFormat.YAML, OutputFormat.JSON])
def test_what_is_exported_is_planned_on(tmp_path: Path, output: OutputFormat) -> None:
    """The same room: one GPU of three is taken, and one node is cordoned."""
    found: list[tuple[int, str, str]] = []

    async def scenario(server: ApiServer) -> None:
        busy = gpu_node(
            nodes_of(3, T4, name="n1"), (entry("secret", soft_grant(9000, gpu="GPU-n1-0")),)
        )
        put(server, GPU_NODES, busy)
        put(server, NODES, machine("n1"))
        put(server, GPU_NODES, gpu_node(nodes_of(1, T4, name="n2")))
        put(server, NODES, machine("n2", cordoned=True))
        commands = session(kubeconfig(tmp_path, server.url))
        code = await commands.answer(lambda reader: explain.export_fleet(reader, commands, output))
        found.append(result(commands, code))

    server = run_with_server(scenario)
    (code, text, errors) = found[0]
    fleet, manifest = tmp_path / "fleet", tmp_path / "d.yaml"
    fleet.write_text(text)
    manifest.write_text(DEPLOYMENT)
    done = vgpu("plan", "-f", manifest, "--fleet", fleet, "-o", "json")

    assert (code, errors) == (0, "")
    assert {request.method for request in server.requests} == {"GET"}
    assert not re.search("secret|team|uid|GPU-", text)
    assert [node["name"] for node in yaml.safe_load(text)["nodes"]] == ["n1", "n2"]
    assert done.returncode == 4, done.stderr
    assert json.loads(done.stdout)["pods"][0]["copies"]["nodes"] == [{"name": "n1", "pods": 2}]


def test_a_cluster_without_gpus_is_an_error(tmp_path: Path) -> None:
    """An empty file would be refused by who reads it."""

    async def scenario(server: ApiServer) -> None:
        commands = session(kubeconfig(tmp_path, server.url))
        code = await commands.answer(
            lambda reader: explain.export_fleet(reader, commands, OutputFormat.YAML)
        )
        assert result(commands, code) == (
            1,
            "",
            "error: no GPU is known here; accepted: a cluster whose nodes report GPUs\n",
        )

    run_with_server(scenario)
