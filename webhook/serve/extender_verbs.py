"""The extender: what kube-scheduler asks about nodes, answered from memory, deciding nothing.

Filter, prioritize and preempt write nothing and reserve nothing, so a question may be asked
again, of another replica, or for nothing. What a pod gets is decided when it is bound.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import orjson

from allocator.config.settings import Settings
from allocator.extender.filter import FilterContext, FilterResult, filter_nodes
from allocator.extender.index import Index
from allocator.extender.pod import SchedulingPod
from allocator.extender.prioritize import score_nodes
from allocator.extender.reasons import FailureReason
from allocator.extender.schema import (
    ARGS,
    BINDING_ARGS,
    PREEMPTION_ARGS,
    ExtenderArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    NodeList,
)
from allocator.model.untrusted import is_safe_name
from allocator.scheduling.preempt import select_victims
from allocator.scheduling.unschedulable import UnschedulablePod
from kube.client import ApiClient
from kube.errors import KubeError

BINDING: Final = "/api/v1/namespaces/{}/pods/{}/binding"
_ENCODE: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
T = TypeVar("T")


class BadQuestionError(Exception):
    """A body that asks nothing we can answer."""


class NotKnownYetError(Exception):
    """A question before the nodes and their GPUs are known: every node would seem to fit."""


class _NodeName(msgspec.Struct, frozen=True, gc=False):
    name: str


class _NodeObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _NodeName


_NODE: Final = msgspec.json.Decoder(_NodeObject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """Answers the questions of schedulers, each from one index."""

    index: Callable[[], Index]
    read_pod: Callable[[msgspec.Raw], SchedulingPod]
    settings: Callable[[], Settings]
    context_of: Callable[[SchedulingPod], FilterContext]
    # The index with the pods that are nominated to nodes, which scores ignore.
    with_nominated: Callable[[Index], Index] = lambda index: index
    # Notes a pod that found no node. It must neither block nor fail.
    note_unschedulable: Callable[[UnschedulablePod], None] = lambda _: None
    # Notes the node to which a pod will probably be bound. It must neither block nor fail.
    note_assumed: Callable[[SchedulingPod, str], None] = lambda _pod, _node: None
    writer: ApiClient | None = None  # None: it never binds

    def filter(self, body: bytes) -> bytes:
        """Answer which nodes take a pod; all of them, for the scheduler has wishes of its own."""
        args, pod = self._args(body)
        nodes = None if args.nodes is None else _nodes_by_name(args.nodes)
        names = tuple(nodes) if nodes is not None else args.node_names or ()
        filter_result = self._filter(pod, names)
        if not filter_result.fitting and filter_result.failures:
            self.note_unschedulable(UnschedulablePod(pod, names, filter_result.failures))
        current, lasting = _texts(filter_result.failures)
        kept = None
        if nodes is not None:
            kept = NodeList(items=tuple(nodes[name] for name in filter_result.fitting))
        return _ENCODE(
            ExtenderFilterResult(
                nodes=kept,
                node_names=filter_result.fitting if nodes is None else None,
                failed_nodes=current,
                failed_and_unresolvable_nodes=lasting,
            )
        )

    def _filter(self, pod: SchedulingPod, names: Sequence[str]) -> FilterResult:
        return filter_nodes(
            self.with_nominated(self.index()), pod, names, context=self.context_of(pod)
        )

    def prioritize(self, body: bytes) -> bytes:
        """Answer how much a pod should like each node, 0 to 10."""
        args, pod = self._args(body)
        names = args.node_names or () if args.nodes is None else tuple(_nodes_by_name(args.nodes))
        settings = self.settings()
        node_scores = score_nodes(
            self.index(),
            pod,
            names,
            weights=settings.score_weights,
            fill_policy=settings.node_policy,
        )
        if node_scores.favourite:
            self.note_assumed(pod, node_scores.favourite)
        return node_scores.answer

    def preempt(self, body: bytes) -> bytes:
        """Answer whom to evict from which node, so that a pod gets its GPUs."""
        args = _decode(PREEMPTION_ARGS, body)
        pod = self._pod(args.pod)
        policy = self.context_of(pod).policy
        return _ENCODE(select_victims(self.with_nominated(self.index()), pod, args, policy=policy))

    async def bind(self, body: bytes) -> bytes:
        """Post the Binding that is asked for and decide nothing: our hook does, as for any."""
        args = _decode(BINDING_ARGS, body)
        if self.writer is None or not self.settings().extender_bind:
            text = "binding through this extender is disabled by the setting extenderBind"
            return _ENCODE(ExtenderBindingResult(error=text))
        if not all(map(is_safe_name, (args.pod_namespace, args.pod_name))):
            raise BadQuestionError("PodNamespace or PodName is not a valid object name")
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args.pod_name, "uid": args.pod_uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        }
        try:
            path = BINDING.format(args.pod_namespace, args.pod_name)
            await self.writer.create(path, orjson.dumps(binding))
        except KubeError as error:
            return _ENCODE(ExtenderBindingResult(error=str(error)))
        return _ENCODE(ExtenderBindingResult())

    def _args(self, body: bytes) -> tuple[ExtenderArgs, SchedulingPod]:
        args = _decode(ARGS, body)
        return args, self._pod(args.pod)

    def _pod(self, raw: msgspec.Raw) -> SchedulingPod:
        try:
            return self.read_pod(raw)
        except _UNREADABLE as error:
            raise BadQuestionError(f"Pod cannot be read: {str(error)[:256]}") from error


def _decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except _UNREADABLE as error:
        raise BadQuestionError(f"body is not an extender call: {str(error)[:256]}") from error


def _nodes_by_name(nodes: NodeList) -> dict[str, msgspec.Raw]:
    """Return whole nodes by name."""
    try:
        return {_NODE.decode(item).metadata.name: item for item in nodes.items or ()}
    except _UNREADABLE as error:
        raise BadQuestionError(f"Nodes cannot be read: {str(error)[:256]}") from error


def _texts(failures: Mapping[str, FailureReason]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the texts of *failures* by node: those that may pass, and those that last."""
    current: dict[str, str] = {}
    lasting: dict[str, str] = {}
    for name, failure in failures.items():
        (lasting if failure.lasting else current)[name] = failure.text
    return current, lasting
