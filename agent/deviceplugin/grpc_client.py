"""gRPC over a socket file: the one module that touches that untyped library."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import grpc
import structlog
from google.protobuf.message import Message
from grpc import aio

from agent.proto import deviceplugin_pb2 as plugin
from agent.proto import podresources_pb2 as resources

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)
# gRPC's default bound of one message, which kubelet has too.
MOST_BYTES: Final = 4 * 1024 * 1024
_LONGEST: Final = 256  # characters of a peer's text that are worth repeating


class Code(StrEnum):
    """How a call failed: the status codes that we treat differently, and OTHER."""

    NOT_YET = "FAILED_PRECONDITION"
    LATE = "DEADLINE_EXCEEDED"
    BUSY = "RESOURCE_EXHAUSTED"
    BROKEN = "INTERNAL"
    AWAY = "UNAVAILABLE"  # nobody listens there, or who did has died
    OTHER = "UNKNOWN"


_CODES: Final = {code.value: code for code in Code}


class CallError(Exception):
    """A call failed with *code* and the message *text*; *details* are the peer's own words."""

    def __init__(self, code: Code, text: str, *, details: str = "") -> None:
        """Build the error of a failed call."""
        super().__init__(text)
        self.code = code
        self.details = details


@dataclass(frozen=True, slots=True)
class Method(Generic[Request, Answer]):
    """One method of a service, with the types of its request and its answer."""

    service: str
    name: str
    request: type[Request]
    answer: type[Answer]

    @property
    def path(self) -> str:
        """Return its name on the wire."""
        return f"/{self.service}/{self.name}"


_PLUGIN: Final = "v1beta1.DevicePlugin"
REGISTER: Final = Method("v1beta1.Registration", "Register", plugin.RegisterRequest, plugin.Empty)
OPTIONS: Final = Method(_PLUGIN, "GetDevicePluginOptions", plugin.Empty, plugin.DevicePluginOptions)
WATCH: Final = Method(_PLUGIN, "ListAndWatch", plugin.Empty, plugin.ListAndWatchResponse)
ALLOCATE: Final = Method(_PLUGIN, "Allocate", plugin.AllocateRequest, plugin.AllocateResponse)
PRESTART: Final = Method(
    _PLUGIN, "PreStartContainer", plugin.PreStartContainerRequest, plugin.PreStartContainerResponse
)
LIST: Final = Method(
    "v1.PodResourcesLister",
    "List",
    resources.ListPodResourcesRequest,
    resources.ListPodResourcesResponse,
)


class Channel:
    """A connection to the server behind a socket file; reconnects by itself."""

    def __init__(self, socket: Path, *, most_bytes: int = MOST_BYTES) -> None:
        """Connect at the first call; answers may have *most_bytes*."""
        options = [
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel: Any = aio.insecure_channel(f"unix:{socket}", options=options)

    async def call(
        self, method: Method[Request, Answer], request: Request, *, within: float
    ) -> Answer:
        """Return the answer; raises CallError, after *within* seconds at the latest.

        A channel that is closed meanwhile cancels its calls, as if our own task were cancelled.
        """
        call: Any = self._channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        try:
            answer: Answer = await call(request, timeout=within)
        except aio.AioRpcError as error:
            raise _failure(error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise CallError(Code.AWAY, "the connection was closed") from None
        return answer

    async def follow(
        self, method: Method[Request, Answer], request: Request
    ) -> AsyncIterator[Answer]:
        """Yield the answers as they come; raises CallError when the stream breaks."""
        call: Any = self._channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        stream: Any = call(request)
        try:
            async for answer in stream:
                yield answer
        except aio.AioRpcError as error:
            raise _failure(error) from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


def _failure(error: Any) -> CallError:  # noqa: ANN401 -- the library has no types
    name = error.code().name
    details = str(error.details())
    code = _CODES.get(name, Code.OTHER)
    return CallError(code, f"{name}: {details[:_LONGEST]}", details=details)


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of one method; ``form`` is the library's own object."""

    service: str
    name: str
    form: Any


def unary_handler(
    method: Method[Request, Answer], act: Callable[[Request], Awaitable[Answer]]
) -> Handler:
    """Let *act* answer one request with one answer; a CallError it raises reaches the peer."""

    async def handle(request: Request, context: Any) -> Answer | None:  # noqa: ANN401 -- the library has no types
        try:
            return await act(request)
        except CallError as error:
            refusal = error
        except Exception as error:  # noqa: BLE001 -- the outermost loop: a peer gets an answer
            structlog.get_logger().exception("gRPC call failed", call=method.path)
            refusal = CallError(Code.BROKEN, f"{type(error).__name__}: {error}"[:_LONGEST])
        await context.abort(grpc.StatusCode[refusal.code.value], str(refusal))
        return None

    form: Any = grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=method.request.FromString,
        response_serializer=method.answer.SerializeToString,
    )
    return Handler(method.service, method.name, form)


def stream_handler(
    method: Method[Request, Answer], act: Callable[[Request], AsyncIterator[Answer]]
) -> Handler:
    """Let *act* answer one request with answers for as long as the peer listens."""

    async def handle(request: Request, _: Any) -> AsyncIterator[Answer]:  # noqa: ANN401 -- the library has no types
        async for answer in act(request):
            yield answer

    form: Any = grpc.unary_stream_rpc_method_handler(
        handle,
        request_deserializer=method.request.FromString,
        response_serializer=method.answer.SerializeToString,
    )
    return Handler(method.service, method.name, form)


class GrpcServer:
    """Serves on one socket file; a stopped server cannot be started again."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        """Register the handlers; listen on nothing yet."""
        self._server: Any = aio.server()
        services: dict[str, dict[str, Any]] = {}
        for handler in handlers:
            services.setdefault(handler.service, {})[handler.name] = handler.form
        for service, forms in services.items():
            generic: Any = grpc.method_handlers_generic_handler(service, forms)
            self._server.add_generic_rpc_handlers((generic,))

    async def start(self, socket: Path) -> None:
        """Listen on *socket*; raises OSError where that cannot be."""
        try:
            self._server.add_insecure_port(f"unix:{socket}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {socket}: {error}") from error
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Take no more calls, and cut off those that run after *grace* seconds."""
        await asyncio.shield(self._server.stop(grace))
