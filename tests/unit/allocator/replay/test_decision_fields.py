"""Decisions in the fields of their records."""

import msgspec

from allocator.audit.record import AdmissionRecord, BindRecord
from allocator.config.settings import DEFAULTS
from allocator.model.allocation import ContainerGrants
from allocator.model.decision import Findings, ModeChoice
from allocator.model.request import Mode
from allocator.placement.mode import mode_for
from allocator.replay.decision_fields import (
    MOST_FINDINGS,
    given_fields,
    mode_fields,
    refusal_fields,
)
from tests.builders.model import A100_40, ask, fleet, mig_grant, pod, soft_grant

COMMON = {"id": "1", "at": "2026-11-21T12:00:00.000+00:00"}
OFFERS = fleet((A100_40, Mode.MIG), (A100_40, Mode.HAMI_CORE))


def test_a_mode_fits_the_record() -> None:
    """The record's schema takes these fields, and costs are those of both modes."""
    choice = mode_for(pod(ask(4000)), OFFERS, settings=DEFAULTS, complete=True)
    assert isinstance(choice, ModeChoice)

    fields = mode_fields(choice)
    record = {"component": "webhook", "step": "mutate", "outcome": "rewritten", **COMMON, **fields}

    read = msgspec.convert({"kind": "admission", **record}, AdmissionRecord)
    assert (read.mode, read.mode_source, read.rule) == (
        choice.mode,
        choice.source,
        choice.why,
    )
    assert list(read.costs_per_mille) == ["mig", "hami-core"]


def test_findings_are_as_many_as_a_record_takes() -> None:
    """A pod of many wrong containers does not make a long record."""
    asks = [ask(90_000, name=f"c{i}") for i in range(MOST_FINDINGS + 2)]
    found = mode_for(pod(*asks), OFFERS, settings=DEFAULTS, complete=True)
    assert isinstance(found, ModeChoice)  # an open fleet

    findings = Findings(found.warnings[0], found.warnings[1:])
    fields = refusal_fields(findings)

    assert len(findings.all) > MOST_FINDINGS == len(fields["findings"])
    assert fields["reason"] == "GpuMemoryShort"
    assert fields["findings"][0]["text"] == str(found.warnings[0])


def test_grants_fit_the_record() -> None:
    """An instance has a profile and a start, a share has neither."""
    hard, soft = mig_grant("1g.5gb", 3), soft_grant(2000, 30)
    containers = (
        ContainerGrants(name="a", grants=(hard,)),
        ContainerGrants(name="b", grants=(soft,)),
    )

    bind = {"component": "webhook", "outcome": "promised", "containers": given_fields(containers)}
    read = msgspec.convert({"kind": "bind", **COMMON, **bind}, BindRecord)

    (one,), (other,) = (given.devices for given in read.containers)
    assert (one.profile, one.start, one.memory_mib) == ("1g.5gb", 3, 4864)
    assert (other.profile, other.start, other.memory_mib, other.cores_percent) == (
        "",
        None,
        2000,
        30,
    )
