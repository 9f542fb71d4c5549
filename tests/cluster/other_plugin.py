"""Somebody else's device plugin, as a program: it gives out resources that we want to serve.

Run as ``python -m tests.cluster.other_plugin GPU RESOURCE…`` on a node; every container is given
the same GPU.
"""

import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc

from agent.proto import deviceplugin_pb2 as wire

FOLDER = Path("/var/lib/kubelet/device-plugins")
DEVICES = 10


def _served(resource: str, gpu: str) -> grpc.Server:
    """Serve one resource and tell kubelet of it."""

    def options(_: wire.Empty, __: object) -> wire.DevicePluginOptions:
        return wire.DevicePluginOptions()

    def listed(_: wire.Empty, __: object) -> Iterator[wire.ListAndWatchResponse]:
        devices = [wire.Device(ID=f"{gpu}-{n}", health="Healthy") for n in range(DEVICES)]
        yield wire.ListAndWatchResponse(devices=devices)
        threading.Event().wait()  # until the program ends

    def allocate(asked: wire.AllocateRequest, _: object) -> wire.AllocateResponse:
        given = wire.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": gpu})
        return wire.AllocateResponse(container_responses=[given for _ in asked.container_requests])

    methods = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
            options, wire.Empty.FromString, wire.DevicePluginOptions.SerializeToString
        ),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            listed, wire.Empty.FromString, wire.ListAndWatchResponse.SerializeToString
        ),
        "Allocate": grpc.unary_unary_rpc_method_handler(
            allocate, wire.AllocateRequest.FromString, wire.AllocateResponse.SerializeToString
        ),
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),)
    )
    endpoint = f"others-{resource.replace('/', '_')}.sock"
    server.add_insecure_port(f"unix:{FOLDER / endpoint}")
    server.start()
    with grpc.insecure_channel(f"unix:{FOLDER / 'kubelet.sock'}") as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            wire.RegisterRequest.SerializeToString,
            wire.Empty.FromString,
        )
        told = wire.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        register(told)
    return server


def _main(gpu: str, *resources: str) -> None:
    servers = [_served(resource, gpu) for resource in resources]
    for server in servers:
        server.wait_for_termination()


if __name__ == "__main__":
    _main(*sys.argv[1:])
