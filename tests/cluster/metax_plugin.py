"""A stand-in for MetaX's device plugin, as a program: it does what public code expects of that.

Run as ``python -m tests.cluster.metax_plugin NODE URL CA_FILE`` with ``TOKEN`` set. It publishes
two cards, and offers 32 shares. At Allocate it takes the pod that holds the lock of the node, gives
the container the GPUs that the pod's annotation names for it, and deletes the lock.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from agent.proto import deviceplugin_pb2 as wire
from allocator.catalog.hami_keys import LOCK_ANNOTATION
from allocator.metax.cards import MetaxCard, encode_cards
from allocator.metax.names import CARDS_KEY, SGPU
from allocator.metax.pod_devices import allocated_uuids
from tests.cluster.api import Api

FOLDER = Path("/var/lib/kubelet/device-plugins")
ENDPOINT = "metax.sock"
VISIBLE = "METAX_VISIBLE_DEVICES"  # of this stand-in
CARDS = [
    MetaxCard(
        uuid=f"GPU-{name}", model="C500", shares=16, memory=65536, healthy=True, numa=0, zone=1
    )
    for name in "ab"
]


class _Plugin:
    def __init__(self, api: Api, node: str) -> None:
        self._api, self._path = api, f"/api/v1/nodes/{node}"
        self._api.patch(self._path, {"metadata": {"annotations": {CARDS_KEY: encode_cards(CARDS)}}})

    def options(self, _: wire.Empty, __: object) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions()

    def listed(self, _: wire.Empty, __: object) -> Iterator[wire.ListAndWatchResponse]:
        count = sum(card.shares for card in CARDS)
        devices = [wire.Device(ID=f"sgpu-{n}", health="Healthy") for n in range(count)]
        yield wire.ListAndWatchResponse(devices=devices)
        threading.Event().wait()  # until the program ends

    def allocate(
        self, asked: wire.AllocateRequest, context: grpc.ServicerContext
    ) -> wire.AllocateResponse:
        """Serve one container of the pod that holds the lock; here each pod has one."""
        notes = self._api.get(self._path)["metadata"]["annotations"]
        if LOCK_ANNOTATION not in notes:
            context.abort(grpc.StatusCode.UNAVAILABLE, "no pod holds the lock of the node")
        _, namespace, name = notes[LOCK_ANNOTATION].split(",")
        pod = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        given = [part for part in allocated_uuids(pod["metadata"]["annotations"]) if part]
        if len(given) != 1 or len(given[0]) != len(asked.container_requests[0].devices_ids):
            context.abort(
                grpc.StatusCode.INTERNAL, f"device number not matched: {json.dumps(given)}"
            )
        self._api.patch(self._path, {"metadata": {"annotations": {LOCK_ANNOTATION: None}}})
        answer = wire.ContainerAllocateResponse(envs={VISIBLE: ",".join(given[0])})
        return wire.AllocateResponse(container_responses=[answer])

    def serve(self) -> grpc.Server:
        """Serve the resource, and tell kubelet of it."""
        methods = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                self.options, wire.Empty.FromString, wire.DevicePluginOptions.SerializeToString
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self.listed, wire.Empty.FromString, wire.ListAndWatchResponse.SerializeToString
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(
                self.allocate,
                wire.AllocateRequest.FromString,
                wire.AllocateResponse.SerializeToString,
            ),
        }
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),)
        )
        server.add_insecure_port(f"unix:{FOLDER / ENDPOINT}")
        server.start()
        with grpc.insecure_channel(f"unix:{FOLDER / 'kubelet.sock'}") as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                wire.RegisterRequest.SerializeToString,
                wire.Empty.FromString,
            )
            register(wire.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=SGPU))
        return server


def _main(node: str, url: str, ca_file: str) -> None:
    with Api(url, token=os.environ["TOKEN"], ca_file=Path(ca_file)) as api:
        _Plugin(api, node).serve().wait_for_termination()


if __name__ == "__main__":
    _main(*sys.argv[1:])
