"""One GPU in mode mps: its compute mode, its daemon, the limits of its clients.

Each round looks, and takes one step. It starts from what the driver and the daemon say, so that
crashes, restarts of the agent and changes by others are all handled the same way.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

import structlog

from agent.driver.driver import ComputeMode, DriverError
from agent.mps.commands import (
    SERVER_LIST,
    MpsAnswerError,
    client_list,
    default_memory,
    default_threads,
    pids_of,
    quit_daemon,
    server_memory,
    server_status,
    server_threads,
    start_server,
    state_of,
    terminate_client,
)
from agent.mps.daemon import DaemonError, Daemons
from agent.mps.limits import ServerLimits
from agent.mps.partitions.partitions_controller import PartitionsController
from agent.mps.plan import (
    ForgetMode,
    KillDaemon,
    MpsDesired,
    MpsIdle,
    MpsMemory,
    MpsObservation,
    MpsProgress,
    MpsRest,
    MpsServer,
    MpsStep,
    QuitDaemon,
    Ready,
    RecordMode,
    SetLimits,
    SetMode,
    StartDaemon,
    StartServer,
    TerminateClients,
    Waiting,
    is_given_up,
    memory_after,
    next_step,
)
from agent.mps.protocols import HolderBook, ModeJournal, MpsDriverCaller
from agent.mps.trouble import MpsTrouble, MpsTroubleKind, troubles_between
from kube.clock import SYSTEM, Clock

CALL_TIMEOUT: Final = 10.0  # seconds for one call of the driver
FIRST_PAUSE: Final = 1.0  # seconds after a failure
LONGEST_PAUSE: Final = 60.0
LOOK_INTERVAL: Final = 5.0  # seconds between looks while nothing is to be done
WAIT_INTERVAL: Final = 1.0  # seconds between looks while the GPU is not ready
REFUSAL_PAUSE: Final = 300.0  # seconds between two words about clients too many
QUIT_SECONDS: Final = 5  # for servers to end
_QUIT_LOOKS: Final = 50  # within these seconds
_MOST_STEPS: Final = 16  # in one call of settle
log = structlog.get_logger(__name__)


def _ignore(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsServices:
    """What the GPUs of one node share; ``report`` must not block."""

    worker: MpsDriverCaller
    daemons: Daemons
    journal: ModeJournal
    book: HolderBook
    clock: Clock = SYSTEM
    is_loaded: Callable[[], bool] = lambda: True  # whether the kernel has a driver; may block
    # GPU and what happened, for an Event on each pod with an entry there, and for a metric
    report: Callable[[str, MpsTrouble], None] = _ignore


class MpsGpuController:
    """Brings the GPU called *uuid* into mode mps and out of it; ``progress`` says how far it is."""

    def __init__(self, uuid: str, services: MpsServices, *, changed: Callable[[], None]) -> None:
        """Touch nothing yet; *changed* is called whenever ``progress`` has changed."""
        self.uuid = uuid
        self.progress = MpsProgress()
        self.desired: MpsDesired | None = None
        self._services = services
        self._changed = changed
        self.partitions = PartitionsController(uuid, services.daemons, services.book)
        self._memory = MpsMemory()
        self._before: MpsObservation | None = None
        self._failures = 0
        self._due = float("-inf")  # when the next step may be taken
        self._refused = False  # a client, because there were too many
        self._refusal_due = float("-inf")  # when the next refusal is told
        self._reported = ""
        self._lock = asyncio.Lock()

    def set_desired(self, desired: MpsDesired) -> bool:
        """Set what the GPU is to be; say whether that changed."""
        changed = self.desired != desired
        self.desired = desired
        return changed

    @property
    def pause(self) -> float:
        """Return the seconds until the next look."""
        if isinstance(self.progress.rest, Ready | MpsIdle):
            return LOOK_INTERVAL
        now = self._services.clock.monotonic()
        return max(WAIT_INTERVAL, min(self._due - now, LONGEST_PAUSE))

    async def settle(self) -> None:
        """Look, and take steps until the GPU rests; never raises for what a GPU or daemon does."""
        async with self._lock:
            if self.desired is None:
                return
            try:
                for _ in range(_MOST_STEPS):
                    if await self._round(self.desired):
                        return
                self._rest(Waiting("it takes more steps than expected"))
            except DriverError as error:
                await self._lose_driver(error, self.desired)
            except (DaemonError, MpsAnswerError, OSError) as error:
                self._fail(str(error))

    async def _round(self, desired: MpsDesired) -> bool:
        """Look once and take one step; say whether the GPU rests."""
        now = self._services.clock.monotonic()
        seen = await self._look()
        # On the way out nobody is left who could be hurt.
        for trouble in troubles_between(self._before, seen) if desired.mps else ():
            if trouble.kind is MpsTroubleKind.NO_ROOM:
                self._refuse_client(trouble, now=now)
                continue
            self._report(trouble)
            if trouble.kind is not MpsTroubleKind.FAULT:
                self._count_failure()
        self._before = seen
        self._memory = memory_after(
            self._memory, seen, desired, before=self._mode_before(seen), now=now
        )
        step = next_step(seen, desired, self._memory, now=now)
        if isinstance(step, Waiting | Ready | MpsIdle):
            await self._rest_in(step, desired)
            return True
        if isinstance(step, StartDaemon | StartServer) and now < self._due:
            self._rest(Waiting(self._reported or "its MPS daemon ended, and is started again soon"))
            return True
        await self._take(step)
        if isinstance(step, TerminateClients):  # they take a moment to end
            self._rest(Waiting(step.why))
            return True
        return False

    async def _rest_in(self, rest: MpsRest, desired: MpsDesired) -> None:
        """Rest, once the partitions of a GPU that is ready are as they should be.

        What it cannot do is told once; raises DaemonError, MpsAnswerError or OSError.
        """
        if isinstance(rest, Ready) and desired.static:
            await self.partitions.settle()
        elif not desired.static:
            await self.partitions.forget()
        if desired.unable and desired.unable != self._reported:
            self._reported = desired.unable
            self._report(MpsTrouble(MpsTroubleKind.NO_START, desired.unable))
        self._rest(rest)

    async def _lose_driver(self, error: DriverError, desired: MpsDesired) -> None:
        """Wait for a driver that refuses a call, or give the GPU up where nothing is left of it."""
        services, gpu, now = self._services, self.uuid, self._services.clock.monotonic()
        since = now if self._memory.refused_since is None else self._memory.refused_since
        self._memory = replace(self._memory, refused_since=since)
        loaded = await asyncio.to_thread(services.is_loaded)
        if not is_given_up(error.fault, desired, loaded=loaded, lasted=now - since):
            self._fail(str(error))
            return
        try:
            if await services.daemons.is_alive(gpu):
                await services.daemons.kill(gpu)
            if gpu in services.daemons.known():
                await services.daemons.remove(gpu)
            if gpu in services.journal.before:
                log.warning("compute mode given up, not put back", gpu=gpu, why=str(error))
                await asyncio.to_thread(services.journal.forget, gpu)
        except (DaemonError, OSError) as failure:
            self._fail(str(failure))
            return
        self._forget_daemon()
        self._rest(MpsIdle())

    async def _look(self) -> MpsObservation:
        worker, daemons, gpu = self._services.worker, self._services.daemons, self.uuid
        compute = await worker.call(worker.driver.compute_mode, gpu, within=CALL_TIMEOUT)
        alive = await daemons.is_alive(gpu)
        servers: tuple[MpsServer, ...] = ()
        silent = ""
        if alive:
            try:
                servers = await self._servers()
            except (DaemonError, MpsAnswerError) as error:
                silent = str(error)
                alive = await daemons.is_alive(gpu)  # it may have ended just now
        processes = await worker.call(worker.driver.processes, gpu, within=CALL_TIMEOUT)
        known = {pid for each in servers for pid in (each.pid, *each.clients)}
        known |= await daemons.server_pids(gpu)
        strangers = tuple(sorted({process.pid for process in processes} - known))
        return MpsObservation(
            compute=compute,
            alive=alive,
            why_silent=silent if alive else "",
            servers=servers,
            static=daemons.is_static(gpu),
            refusal=await daemons.last_refusal(gpu),
            strangers=strangers,
        )

    async def _servers(self) -> tuple[MpsServer, ...]:
        ask, gpu = self._services.daemons.ask, self.uuid
        return tuple(
            [
                MpsServer(
                    pid=pid,
                    state=state_of(await ask(gpu, server_status(pid))),
                    clients=pids_of(await ask(gpu, client_list(pid))),
                )
                for pid in pids_of(await ask(gpu, SERVER_LIST))
            ]
        )

    def _mode_before(self, seen: MpsObservation) -> ComputeMode | None:
        """Return what is to be put back; DEFAULT where a damaged journal no longer says it."""
        journal = self._services.journal
        before = journal.before.get(self.uuid)
        exclusive = seen.compute is ComputeMode.EXCLUSIVE_PROCESS
        if before is None and journal.damaged and exclusive:
            return ComputeMode.DEFAULT if self.uuid in self._services.daemons.known() else None
        return before

    async def _take(self, step: MpsStep) -> None:
        """Take one step; raises DriverError, DaemonError or OSError."""
        services, gpu = self._services, self.uuid
        log.info("mps step", gpu=gpu, step=type(step).__name__)
        match step:
            case RecordMode(before):
                await asyncio.to_thread(services.journal.record, gpu, before)
            case SetMode(mode):
                call = services.worker.call
                await call(services.worker.driver.set_compute_mode, gpu, mode, within=CALL_TIMEOUT)
            case SetLimits(limits, servers):
                await self._limit(limits, servers)
            case TerminateClients(clients, why):
                await self._terminate(clients, why)
            case ForgetMode():
                # Folders that cannot be removed now are removed in a later round: what is
                # forgotten has none.
                await services.daemons.remove(gpu)
                await asyncio.to_thread(services.journal.forget, gpu)
            case StartDaemon() | StartServer() | QuitDaemon() | KillDaemon():
                await self._start_or_end(step)
            case _:
                assert_never(step)

    async def _start_or_end(
        self, step: StartDaemon | StartServer | QuitDaemon | KillDaemon
    ) -> None:
        daemons, gpu = self._services.daemons, self.uuid
        match step:
            case StartDaemon(static):
                await daemons.prepare(gpu)
                await daemons.start(gpu, static=static)
            case StartServer():
                await daemons.ask(gpu, start_server())
                pids = pids_of(await daemons.ask(gpu, SERVER_LIST))
                if not pids:
                    raise DaemonError("its MPS server does not start")
                limits = self._memory.daemon_limits
                told = {} if limits is None else dict.fromkeys(pids, limits)
                self._memory = replace(self._memory, server_limits=told)
            case QuitDaemon():
                await self._quit()
            case KillDaemon(why):
                log.warning("mps daemon killed", gpu=gpu, why=why)
                await daemons.kill(gpu)
                self._forget_daemon()
            case _:
                assert_never(step)

    async def _limit(self, limits: ServerLimits, servers: tuple[int, ...]) -> None:
        ask, gpu = self._services.daemons.ask, self.uuid
        await ask(gpu, default_memory(limits.memory))
        await ask(gpu, default_threads(limits.threads))
        for pid in servers:
            await ask(gpu, server_memory(pid, limits.memory))
            await ask(gpu, server_threads(pid, limits.threads))
        told = {**self._memory.server_limits, **dict.fromkeys(servers, limits)}
        self._memory = replace(self._memory, daemon_limits=limits, server_limits=told)

    async def _terminate(self, clients: tuple[tuple[int, int], ...], why: str) -> None:
        log.warning("mps clients terminated", gpu=self.uuid, why=why, clients=len(clients))
        for server, client in clients:
            await self._services.daemons.ask(self.uuid, terminate_client(server, client))

    async def _quit(self) -> None:
        """Ask the daemon to end; one that lives on is killed in the next round."""
        daemons, gpu = self._services.daemons, self.uuid
        try:
            await daemons.ask(gpu, quit_daemon(QUIT_SECONDS))
        except DaemonError as error:
            log.warning("mps daemon does not quit", gpu=gpu, why=str(error))
        for _ in range(_QUIT_LOOKS):
            if not await daemons.is_alive(gpu):
                self._forget_daemon()
                return
            await self._services.clock.sleep(QUIT_SECONDS / _QUIT_LOOKS)
        self._memory = replace(self._memory, refused_quit=True)

    def _forget_daemon(self) -> None:
        """Expect no daemon any more, so that its end is no trouble."""
        self._before = None

    def _count_failure(self) -> None:
        """Put the next start off: a daemon that ends at once must not be started for ever."""
        self._failures += 1
        clock = self._services.clock
        pause = clock.backoff(self._failures, first=FIRST_PAUSE, most=LONGEST_PAUSE)
        self._due = clock.monotonic() + pause

    def _fail(self, why: str) -> None:
        self._count_failure()
        if why != self._reported:
            self._report(MpsTrouble(MpsTroubleKind.NO_START, why))
        self._reported = why
        self._rest(Waiting(why))

    def _refuse_client(self, trouble: MpsTrouble, *, now: float) -> None:
        """Remember that the server is full, and tell it, but not each time that somebody tries."""
        self._refused = True
        if now >= self._refusal_due:
            self._refusal_due = now + REFUSAL_PAUSE
            self._report(trouble)

    def _report(self, trouble: MpsTrouble) -> None:
        log.warning("mps trouble", gpu=self.uuid, kind=str(trouble.kind), note=trouble.note)
        self._services.report(self.uuid, trouble)

    def _rest(self, rest: MpsRest) -> None:
        if isinstance(rest, Ready | MpsIdle):
            self._reported = ""
            if self._services.clock.monotonic() >= self._due + LONGEST_PAUSE:
                self._failures = 0
        clients = 0 if self._before is None else len(self._before.clients)
        progress = MpsProgress(
            rest=rest,
            failures=self._failures,
            servers=() if self._before is None else tuple(s.pid for s in self._before.servers),
            clients=clients,
            most_clients=max(clients, self.progress.most_clients),
            refused=self._refused,
            chunks=self.partitions.chunks,
            missing=self.partitions.missing,
            held=self.partitions.held,
            served=self.partitions.served,
        )
        if progress != self.progress:
            self.progress = progress
            self._changed()
