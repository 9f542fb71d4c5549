"""Regions: the directories that containers share with the interception library, on this node.

Each container has one, ``<pod uid>_<container>``. The agent writes its region before the
container starts, so that the limits in it are the promise's, whatever the environment says. The
directory stays the agent's: a tenant without root's rights cannot replace the file.
"""

import asyncio
import ctypes
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import structlog

from agent.node.process_files import Processes, Resident
from agent.region import kept_files, safe_files
from agent.region.decode import RegionReading, Unreadable
from agent.region.layout import SEEDED, SEMAPHORE_SIZE
from agent.region.library_files import Absent, Installed, missing_reason
from agent.region.repair import Repair
from agent.region.repair_files import mend
from agent.region.seed import (
    SEMAPHORE,
    Limit,
    Seed,
    UnlimitedError,
    Write,
    fallback_writes,
    limit_corrections,
    seed_region,
)
from agent.share import NotYetError, Share
from allocator.catalog.injection import REGION_FILE, REGIONS_FOLDER
from allocator.model.request import Mode

FILE: Final = REGION_FILE
VACATE_CHECKS: Final = 80  # of processes that should have ended
VACATE_INTERVAL: Final = 0.25  # seconds between them; all together less than kubelet's 30
MOST_PIDS_NAMED: Final = 8  # processes named in a refusal
TICK: Final = 1.0  # seconds; far more than one of the kernel's clock
UNKNOWN_POD_GRACE: Final = 300.0  # seconds that the directory of an unknown pod is kept
_UNFINISHED: Final = ".seed-"
_DIRECTORY_MODE: Final = 0o755
_FILE_MODE: Final = 0o666  # containers run as any user, and all of them write
log = structlog.get_logger(__name__)


def limits_of(share: Share) -> tuple[Limit, ...]:
    """Return the limits of the devices that the library limits, in the order it numbers them."""
    soft = (grant for grant in share.grants if grant.mode is Mode.HAMI_CORE)
    return tuple(Limit(memory=grant.memory * 1024 * 1024, cores=grant.cores) for grant in soft)


def semaphore() -> bytes:
    """Return a process-shared semaphore of value 1 as this machine's C library makes it."""
    buffer = ctypes.create_string_buffer(SEMAPHORE_SIZE)
    ctypes.CDLL(None).sem_init(buffer, 1, 1)
    return buffer.raw


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory at one *version*, where that is sure: readers of its regions by name."""

    version: tuple[int, int] | None
    readers: Mapping[str, safe_files.RegionReader]


class RegionFiles:
    """Keeps the directories in *folder*, the node's ``hostRoot``; *now* returns Unix seconds."""

    def __init__(
        self,
        folder: Path,
        processes: Processes,
        *,
        library: Installed | Absent,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Serve containers of *library*; without one they are refused, and nothing is seeded.

        Our semaphore is compared with the C library's: a wrong one would hang every tenant.
        """
        self._folder = folder
        self._library = library
        self._base = str(folder / REGIONS_FOLDER)
        self._processes = processes
        self._now = now
        self._semaphore_matches = semaphore() == SEMAPHORE
        self._placing = Lock()  # held while a region is put in its place
        self._live: frozenset[str] = frozenset()
        self._ended: frozenset[str] = frozenset()
        self._directories: dict[tuple[str, str], _Directory] = {}

    async def seed(self, share: Share, *, by_cdi: bool = False) -> str:
        """Make the region of a container that is about to start; return its directory's path.

        One of this layout that a living process of the pod has in memory is kept and set right. Any
        other is written anew: what ended processes left in it would count against the next ones.
        *by_cdi* says that CDI mounts it, and not kubelet. Raises NotYetError.
        """
        return await asyncio.to_thread(self._seed, share, by_cdi=by_cdi)

    async def withhold(self, share: Share) -> None:
        """Put something that nobody can open in the place of a region; raises NotYetError.

        A pod has the mounts before it is known whether it gets a MIG instance. Of a path that is
        not there kubelet makes a directory, which a container's root user could fill.
        """
        await asyncio.to_thread(self._withhold, share)

    async def vacate(self, uid: str) -> None:
        """Return once no process of the pod *uid* is left; raises NotYetError."""
        left = await asyncio.to_thread(self._residents_of, uid)
        for _ in range(VACATE_CHECKS):
            if not left:
                return
            await asyncio.sleep(VACATE_INTERVAL)
            left = await asyncio.to_thread(self._residents_of, uid)
        pids = ", ".join(str(one.pid) for one in left[:MOST_PIDS_NAMED])
        raise NotYetError(f"processes of the previous pod {uid} are still running: pid {pids}")

    def _withhold(self, share: Share) -> None:
        name = _directory_name(share.owner.uid, share.owner.container)
        try:
            with self._container_directory(share) as (directory_fd, base_fd):
                kept_files.forget(name, base_fd)
                _remove_regions(directory_fd, base_fd)
                os.mknod(FILE, stat.S_IFSOCK, dir_fd=directory_fd)
        except OSError as error:
            where = f"{self._base}/{name}"
            raise NotYetError(f"{where} cannot be prepared: {error.strerror}") from error

    def _seed(self, share: Share, *, by_cdi: bool) -> str:
        owner = share.owner
        name = _directory_name(owner.uid, owner.container)
        path = f"{self._base}/{name}"
        library = self._library
        why = library.why if isinstance(library, Absent) else missing_reason(self._folder, library)
        if why:
            raise NotYetError(f"hami-core is unavailable on this node: {why}")
        if not self._semaphore_matches:
            raise NotYetError("libvgpu.so cannot use the semaphores of the agent's C library")
        try:
            seed = seed_region(limits_of(share), priority=share.priority, now=int(self._now()))
            # Where fs.protected_regular is set, a process may open it in a sticky /tmp only if both
            # have the same owner: root of the container. In a pod with its own users the runtime
            # translates the owners of what kubelet mounts, and not of what CDI does.
            uid = self._processes.root_id(self._residents_of(owner.uid)) if by_cdi else 0
            with self._container_directory(share) as (directory_fd, base_fd):
                if not self._repair_live(directory_fd, share):
                    kept_files.forget(name, base_fd)
                    _replace_region(directory_fd, base_fd, seed=seed, uid=uid)
                    kept_files.keep(name, directory_fd, base_fd=base_fd)
        except UnlimitedError as error:
            raise NotYetError(
                f'container "{owner.container}" cannot be limited: {error}'
            ) from error
        except OSError as error:
            raise NotYetError(f"{path} cannot be prepared: {error.strerror}") from error
        return path

    def read(self, uid: str, container: str) -> tuple[RegionReading, ...]:
        """Return the regions in a container's directory, that of the agent first.

        More than one is there when a program of the tenant made its own. Not to be called from two
        threads, nor while :meth:`collect` runs.
        """
        key = uid, container
        try:
            path = self._path(uid, container)
            readers = self._readers_of(key, path)
        except (OSError, NotYetError):
            self._close_readers([key])
            return ()
        return tuple(
            RegionReading(name=name, region=reader.read(f"{path}/{name}"), excess=reader.excess)
            for name, reader in readers.items()
        )

    def put_back(self, uid: str, container: str) -> str:
        """Put the region that the agent seeded back in its place.

        Return what was wrong, empty if nothing was. What was in its place instead is read as a
        further region of the container.
        """
        try:
            name = _directory_name(uid, container)
            if kept_files.is_in_place(self._base, name):
                return ""
            with self._placing, self._base_directory() as base_fd:
                return kept_files.put_back(name, base_fd)
        except (OSError, NotYetError):
            return ""

    def repair(
        self, uid: str, container: str, *, reading: RegionReading, repairs: Sequence[Repair]
    ) -> tuple[Repair, ...]:
        """Repair a region that was read; return what was written."""
        if isinstance(reading.region, Unreadable):
            return ()
        try:
            with safe_files.directory(self._path(uid, container)) as directory_fd:
                layout = reading.region.layout
                return mend(reading.name, directory_fd, layout=layout, repairs=repairs)
        except (OSError, NotYetError):
            return ()

    def write(
        self, uid: str, container: str, *, reading: RegionReading, writes: Sequence[Write]
    ) -> bool:
        """Amend a region that was read; say whether it still was there and of the same layout."""
        if isinstance(reading.region, Unreadable):
            return False
        try:
            with safe_files.directory(self._path(uid, container)) as directory_fd:
                layout = reading.region.layout
                return safe_files.amend(reading.name, directory_fd, layout=layout, writes=writes)
        except (OSError, NotYetError):
            return False

    def collect(self, live: Collection[str]) -> tuple[str, ...]:
        """Remove the directories of pods that are over; return their names.

        *live* are the uids that the ledger has entries for. A pod that was among them before is
        over at once, one never seen after a while; none while a process of it lives.
        """
        self._ended = (self._ended | self._live) - frozenset(live)
        self._live = frozenset(live)
        self._close_readers([place for place in self._directories if place[0] not in live])
        try:
            with self._base_directory() as base_fd:
                names = [
                    name
                    for name in safe_files.file_names(base_fd)
                    if _uid_of_directory(name) not in live
                ]
                self._ended &= {_uid_of_directory(name) for name in names}
                to_remove = [
                    n
                    for n in names
                    if _uid_of_directory(n) in self._ended or self._is_abandoned(n, base_fd)
                ]
                if to_remove:
                    uids_with_processes = {
                        one.cgroup.uid for one in self._processes.pod_processes() if one.cgroup
                    }
                    to_remove = [
                        name
                        for name in to_remove
                        if _uid_of_directory(name) not in uids_with_processes
                    ]
                for name in to_remove:
                    safe_files.quarantine(name, at=base_fd, quarantine_fd=base_fd)
                safe_files.purge_quarantine(base_fd)
        except OSError as error:
            log.warning("region cleanup failed", why=str(error))
            return ()
        removed = (name for name in to_remove if "_" in name)
        return tuple(sorted(n for n in removed if not n.endswith(kept_files.KEPT_SUFFIX)))

    def _readers_of(self, key: tuple[str, str], path: str) -> Mapping[str, safe_files.RegionReader]:
        """Return readers by the names in a directory, which is listed again where it changed."""
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116 -- a Path costs more
        # A change within one tick of the kernel's clock after another bears the same time.
        settled = self._now() - status.st_ctime > TICK
        version = (status.st_ino, status.st_ctime_ns) if settled else None
        known = self._directories.get(key)
        if known is not None and version is not None and known.version == version:
            return known.readers
        with safe_files.directory(path) as directory_fd:
            names = safe_files.region_names(directory_fd, FILE)
        before = {} if known is None else known.readers
        for name in before.keys() - set(names):
            before[name].close()
        readers = {name: before.get(name) or safe_files.RegionReader() for name in names}
        self._directories[key] = _Directory(version, readers)
        return readers

    def _close_readers(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            directory = self._directories.pop(key, None)
            for reader in directory.readers.values() if directory is not None else ():
                reader.close()

    @contextmanager
    def _base_directory(self) -> Iterator[int]:
        Path(self._base).mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        with safe_files.directory(self._base) as base_fd:
            yield base_fd

    @contextmanager
    def _container_directory(self, share: Share) -> Iterator[tuple[int, int]]:
        """Open a container's directory, which is made where it is missing, and the one it is in."""
        name = _directory_name(share.owner.uid, share.owner.container)
        with self._placing, self._base_directory() as base_fd:
            with suppress(FileExistsError):
                os.mkdir(name, _DIRECTORY_MODE, dir_fd=base_fd)
            with safe_files.directory(name, at=base_fd) as directory_fd:
                os.fchmod(directory_fd, _DIRECTORY_MODE)
                yield directory_fd, base_fd

    def _path(self, uid: str, container: str) -> str:
        return f"{self._base}/{_directory_name(uid, container)}"

    def _repair_live(self, directory_fd: int, share: Share) -> bool:
        """Correct the limits of a region in use, and say whether there is one."""
        region = safe_files.read(FILE, directory_fd)
        if isinstance(region, Unreadable) or not region.slots or region.layout is not SEEDED:
            return False
        inode = os.stat(FILE, dir_fd=directory_fd, follow_symlinks=False).st_ino
        if not self._processes.is_mapped(self._residents_of(share.owner.uid), inode):
            return False
        limits = limits_of(share)
        writes = (*limit_corrections(region, limits), *fallback_writes(region, limits))
        return safe_files.amend(FILE, directory_fd, layout=region.layout, writes=writes)

    def _residents_of(self, uid: str) -> tuple[Resident, ...]:
        residents = self._processes.pod_processes()
        return tuple(one for one in residents if one.cgroup is not None and one.cgroup.uid == uid)

    def _is_abandoned(self, name: str, base_fd: int) -> bool:
        """Say whether a directory is unchanged for long, by a time that tenants cannot set."""
        with suppress(OSError):
            changed = os.stat(name, dir_fd=base_fd, follow_symlinks=False).st_ctime
            return self._now() - changed > UNKNOWN_POD_GRACE
        return False


def _directory_name(uid: str, container: str) -> str:
    """Return a directory's name; raises NotYetError for an invalid uid or container name."""
    name = f"{uid}_{container}"
    if not uid or not container or "/" in name or "\0" in name or name.startswith("."):
        raise NotYetError(f"{name!r} is not the directory of a container")
    return name


def _uid_of_directory(name: str) -> str:
    return name.partition("_")[0]


def _replace_region(directory_fd: int, base_fd: int, *, seed: Seed, uid: int) -> None:
    """Move a new region into a directory; it is written where no tenant can reach it."""
    _remove_regions(directory_fd, base_fd)
    unfinished = f"{_UNFINISHED}{secrets.token_hex(8)}"
    safe_files.create(unfinished, base_fd, seed, mode=_FILE_MODE)
    if uid:
        os.chown(unfinished, uid, uid, dir_fd=base_fd, follow_symlinks=False)
    os.rename(unfinished, FILE, src_dir_fd=base_fd, dst_dir_fd=directory_fd)


def _remove_regions(directory_fd: int, base_fd: int) -> None:
    """Remove the regions of ended processes, and directories with their names."""
    for name in safe_files.region_names(directory_fd, FILE):
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
                safe_files.quarantine(name, at=directory_fd, quarantine_fd=base_fd)
            else:
                os.unlink(name, dir_fd=directory_fd)
