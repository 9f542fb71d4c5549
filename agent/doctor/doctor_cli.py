"""The doctor: examines a node and its driver, and prints its findings."""

import asyncio
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TextIO

from agent.doctor.checks import DoctorFinding, findings, has_failure, render
from agent.doctor.facts_files import facts_of
from agent.driver.driver import Device, Driver, DriverError, Versions
from agent.driver.driver_thread import DriverThread
from agent.node.paths_cli import below
from allocator.report.document_text import document_text

DRIVER_TIMEOUT: Final = 60.0  # seconds for each answer of the driver; a slow NVML takes ten


class DoctorOutput(StrEnum):
    """In which form the findings are printed."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorTarget:
    """The node to examine: its driver, where its ``/`` is, kubelet's folder on it, and ours."""

    driver: Driver
    root: Path
    kubelet: Path
    host_root: Path


async def examine(target: DoctorTarget) -> tuple[DoctorFinding, ...]:
    """Return the findings; changes nothing, and reports what cannot be read as a finding."""
    worker = DriverThread(target.driver)
    versions: Versions | None = None
    devices: tuple[Device, ...] = ()
    driver_error: str | None = None
    try:
        versions = await worker.call(target.driver.versions, within=DRIVER_TIMEOUT)
        devices = await worker.call(target.driver.devices, within=DRIVER_TIMEOUT)
    except DriverError as error:
        driver_error = str(error)
    await worker.close()
    kubelet, host_root = (below(target.root, path) for path in (target.kubelet, target.host_root))
    facts = await asyncio.to_thread(facts_of, target.root, kubelet, host_root)
    return findings(replace(facts, versions=versions, devices=devices, driver_error=driver_error))


def print_findings(
    doctor_findings: tuple[DoctorFinding, ...], output: DoctorOutput, stream: TextIO
) -> int:
    """Print the findings, and return the exit code: 1 if one is a failure."""
    match output:
        case DoctorOutput.TEXT:
            stream.write(render(doctor_findings))
        case DoctorOutput.JSON:
            document = {
                "ok": not has_failure(doctor_findings),
                "findings": [asdict(each) for each in doctor_findings],
            }
            stream.write(document_text(document, yaml=False) + "\n")
    return int(has_failure(doctor_findings))
