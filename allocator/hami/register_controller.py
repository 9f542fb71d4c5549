"""Registers nodes that our agents serve with HAMi's scheduler, and answers its handshake.

HAMi's scheduler drops a node whose ``nvidia.com/gpu``, or whatever its name is there, is not
allocatable, and takes it back, again and again. So a register exists only while the agent offers
some.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import structlog

from allocator.catalog.hami_keys import HANDSHAKE_ANNOTATION, REGISTER_ANNOTATION
from allocator.catalog.keys import HAMI_REGISTER_KEY
from allocator.hami.handshake import ANSWER_AFTER_SECONDS, asks_for_report, encode_report
from allocator.hami.node_lock_client import NODE_PATH
from allocator.hami.node_marks import HamiMarks
from allocator.hami.registered_gpus import (
    hami_register_of,
    has_foreign_register,
    register_digest,
)
from allocator.ledger.ledger import Ledger
from kube.client import ApiClient
from kube.clock import SYSTEM, Clock
from kube.errors import KubeError
from kube.workqueue import Backoff, Workqueue, isolated

Annotations = Mapping[str, str | None]
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredNodeInputs:
    """What the register of one node is computed from."""

    marks: HamiMarks
    ledger: Ledger | None
    counted: Collection[str]  # uids of the pods there that HAMi's scheduler counts itself
    wanted: bool  # our agent serves the node, and the setting hamiRegister is on
    count: str  # the resource by which HAMi's scheduler tells that a node is alive


class HamiRegisterController:
    """Writes annotations that are due; several may run, one is enough."""

    def __init__(
        self,
        client: ApiClient,
        inputs: Callable[[], Mapping[str, RegisteredNodeInputs] | None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        """Write through *client*.

        *inputs* returns what is known of the nodes of our agents by name, and ``None`` while not
        all of it is.
        """
        self._client = client
        self._inputs = inputs
        self._clock = clock
        self._backoff: Backoff[str] = Backoff(clock)
        self._queue: Workqueue[str] = Workqueue()
        self._asked: dict[str, float] = {}  # by node: monotonic seconds since it wants an answer

    async def sweep(self) -> None:
        """Bring the annotations of every node up to date."""
        inputs = self._inputs()
        if inputs is None:
            return
        due: dict[str, Annotations] = {}
        for name, node in inputs.items():
            with isolated("register check failed", node=name):
                if changes := self._due_changes(name, node):
                    due[name] = changes
        self._asked = {name: at for name, at in self._asked.items() if name in inputs}
        writes = {name: (name, due[name]) for name in self._backoff.due_keys(sorted(due))}
        await self._queue.run_each(writes, self._write)

    def _due_changes(self, name: str, node: RegisteredNodeInputs) -> Annotations:
        """Return the annotations to write; none where another plugin registers the node."""
        marks, text = node.marks, ""
        if has_foreign_register(marks):
            return {}
        if node.wanted and marks.is_alive(node.count) and node.ledger is not None:
            text = hami_register_of(node.ledger, node.counted)
        if not text:
            self._asked.pop(name, None)
            return {REGISTER_ANNOTATION: None, HAMI_REGISTER_KEY: None} if marks.digest else {}
        report = {HANDSHAKE_ANNOTATION: encode_report(self._clock.wall())}
        if text != marks.register:
            return {REGISTER_ANNOTATION: text, HAMI_REGISTER_KEY: register_digest(text), **report}
        return report if self._is_answer_due(name, marks.handshake) else {}

    def _is_answer_due(self, name: str, handshake: str) -> bool:
        """Say whether a question has stood long enough; each answer causes the next one."""
        if not asks_for_report(handshake):
            self._asked.pop(name, None)
            return False
        now = self._clock.monotonic()
        return not handshake or now - self._asked.setdefault(name, now) >= ANSWER_AFTER_SECONDS

    async def _write(self, work: tuple[str, Annotations]) -> None:
        name, annotations = work
        failed = partial(self._backoff.note_failure, name)
        with isolated("register update failed", failed, node=name):
            try:
                await self._client.merge_patch(
                    f"{NODE_PATH}/{name}", {"metadata": {"annotations": annotations}}
                )
            except KubeError as error:
                log.warning("register not updated", node=name, why=str(error))
                failed()
            else:
                self._asked.pop(name, None)
