"""The doctor: looks at a node and its driver, and prints what it finds."""

import asyncio
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, TextIO

import orjson

from agent.doctor.checks import DoctorFinding, findings, has_failure, render
from agent.doctor.facts_files import facts_of
from agent.driver.driver import Device, Driver, DriverError, Versions
from agent.driver.driver_thread import DriverThread

PATIENCE: Final = 60.0  # seconds that a driver has for each answer; a slow NVML takes ten


class DoctorOutput(StrEnum):
    """In which form the findings are printed."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorTarget:
    """The node that is looked at: its driver, where its ``/`` is, and kubelet's folder on it."""

    driver: Driver
    root: Path
    kubelet: Path


async def examine(patient: DoctorTarget) -> tuple[DoctorFinding, ...]:
    """Return what is found; nothing is changed, and what cannot be read is a finding."""
    worker = DriverThread(patient.driver)
    versions: Versions | None = None
    devices: tuple[Device, ...] = ()
    silent: str | None = None
    try:
        versions = await worker.call(patient.driver.versions, within=PATIENCE)
        devices = await worker.call(patient.driver.devices, within=PATIENCE)
    except DriverError as error:
        silent = str(error)
    await worker.close()
    kubelet = patient.root / patient.kubelet.relative_to(patient.kubelet.anchor)
    facts = await asyncio.to_thread(facts_of, patient.root, kubelet)
    return findings(replace(facts, versions=versions, devices=devices, silent=silent))


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
            stream.write(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n")
    return int(has_failure(doctor_findings))
