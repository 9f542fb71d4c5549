"""An extender that has just started knows no node, and must not let every node pass."""

import asyncio

import orjson

from allocator.cluster.inventory import GPU_NODES, NODES, Inventory
from kube.client import Client
from kube.config import Access
from kube.events import Recorder
from tests.builders.gpunodes import gpu_node
from tests.builders.model import T4, nodes_of
from tests.fakes.api_objects import parsed
from tests.fakes.api_server import ApiServer
from tests.integration.waiting import until
from tests.integration.webhook.serve.test_extender__read_only import NODE, question
from webhook.serve.extender import ExtenderService
from webhook.serve.extender_routes import immediate_answers
from webhook.serve.view import view_of


def test_it_answers_once_it_knows_the_nodes() -> None:
    """Before that it asks to be asked again; the scheduler tries the pod later."""

    async def run() -> None:
        async with ApiServer() as server, Client(Access(url=server.url)) as client:
            server.objects.create(parsed(GPU_NODES), gpu_node(nodes_of(1, T4, name=NODE)))
            server.objects.create(parsed(NODES), {"metadata": {"name": NODE}})
            inventory = Inventory(client, namespace="system", prepare_scores=True)
            service = ExtenderService(
                client=client,
                inventory=inventory,
                context_of=lambda name: view_of(inventory, name).context,
                events=Recorder(client, controller="c", instance="i"),
            )
            attendant = service._unschedulable_controller()  # noqa: SLF001 -- the composition is under test
            answers = immediate_answers(service._extender(attendant))  # noqa: SLF001 -- the same
            verbs = [answers[f"/extender/{verb}".encode()] for verb in ("filter", "prioritize")]

            for verb in verbs:
                status, text = verb(question("p"))
                assert (status, text[:9]) == (503, b"the nodes")

            following = asyncio.create_task(inventory.run())
            try:
                await until(lambda: inventory.knows_gpus)
                assert [verb(question("p"))[0] for verb in verbs] == [200, 200]
                assert orjson.loads(verbs[0](question("p"))[1])["NodeNames"] == [NODE]
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(run())
