"""Content and CDI documents: what reaches a container is its share and nothing wider."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from agent.deviceplugin import cdi
from agent.deviceplugin.container_edits import (
    ContainerEdits,
    HostMount,
    hami_core_edits,
    mig_edits,
    slot_mounts,
    unenforced_edits,
)
from agent.share import DeviceNode, Owner, ReadyInstance, Share
from allocator.catalog.injection import MOUNTS, VARIABLES, Column, Literal
from allocator.model.allocation import Grant
from allocator.model.request import Mode
from allocator.model.units import CorePercent, MiB
from tests.builders.model import mig_grant, soft_grant
from webhook.admission.injection import InjectionValues, variables

OWNER = Owner(uid="uid-1", namespace="team-a", pod="train-0", containers=("main",))


def share(*grants: Grant) -> Share:
    return Share(owner=OWNER, grants=grants, key="c0")


def ready(uuid: str, minor: int) -> ReadyInstance:
    node = DeviceNode(f"/dev/nvidia-caps/nvidia-cap{minor}", 237, minor)
    return ReadyInstance(uuid=uuid, memory=MiB(4864), nodes=(node,))


def hami_core_edits_of(*grants: Grant) -> ContainerEdits:
    return hami_core_edits(share(*grants), library="/lib", region="/regions/uid-1_main")


amounts = st.integers(min_value=1, max_value=80000)
percents = st.integers(min_value=0, max_value=100)


@given(amounts, percents, st.integers(min_value=1, max_value=4))
def test_the_values_are_those_that_admission_injects(memory: int, cores: int, count: int) -> None:
    """What CDI brings and what the pod has never differ, wherever admission knew the amount."""
    grants = [soft_grant(memory, cores, gpu=f"GPU-{i}") for i in range(count)]
    asked = InjectionValues(key="c0", count=count, memory=memory, cores=cores)
    injected = {
        entry["name"]: entry["value"]
        for entry in variables(Column.HAMI_CORE, asked)
        if "value" in entry
    }

    env = dict(hami_core_edits_of(*grants).env)

    assert env == injected | {"NVIDIA_VISIBLE_DEVICES": ",".join(g.gpu for g in grants)}


def test_each_device_has_its_own_limits() -> None:
    """Device k of the container has the k-th grant's memory and cores, not the largest."""
    env = dict(
        hami_core_edits_of(soft_grant(1000, 10, gpu="GPU-a"), soft_grant(2000, 20, gpu="GPU-b")).env
    )

    assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT_0"]) == ("1000m", "10")
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_1"], env["CUDA_DEVICE_SM_LIMIT_1"]) == ("2000m", "20")


def test_no_reserved_variable_of_the_library_is_left_to_the_tenant() -> None:
    """Whatever an image or a ConfigMap sets, hami-core's constants are repeated."""
    fixed = {
        row.name
        for row in VARIABLES
        if isinstance(row.forms.get(Column.HAMI_CORE), Literal) and not row.per_device
    }

    assert fixed <= {name for name, _ in hami_core_edits_of(soft_grant(1000)).env}
    assert "CUDA_DISABLE_CONTROL" in fixed


def test_instances_are_shown_by_uuid_with_their_files() -> None:
    """A MIG share is its instances and their capability files, without the library."""
    grants = mig_grant("1g.5gb", 3, gpu="GPU-a"), mig_grant("1g.5gb", 0, gpu="GPU-b")

    edits = mig_edits(share(*grants), (ready("MIG-1", 30), ready("MIG-2", 31)))

    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "MIG-1,MIG-2"
    assert [node.minor for node in edits.nodes] == [30, 31]
    assert edits.mounts == ()
    assert not [name for name, _ in edits.env if name.startswith("CUDA_")]


def test_what_nothing_enforces_is_shown_only() -> None:
    """A memory-only share shows its GPU; a vocabulary's own variables stay the pod's."""
    grant = Grant(gpu="GPU-a", mode=Mode.MEMORY_ONLY, memory=MiB(1000), cores=CorePercent(0))

    edits = unenforced_edits(share(grant))

    assert dict(edits.env)["NVIDIA_VISIBLE_DEVICES"] == "GPU-a"
    assert not [name for name, _ in edits.env if name.startswith("ALIYUN")]
    assert (edits.mounts, edits.nodes) == ((), ())


def test_mounts_are_those_that_admission_makes() -> None:
    """The same paths with the same access, from the library's folder and the region's."""
    expected = {(m.path, m.read_only) for m in MOUNTS[Column.HAMI_CORE]}

    mounts = hami_core_edits_of(soft_grant(1000)).mounts

    assert {(m.path, m.read_only) for m in mounts} == expected
    assert {m.host for m in mounts} == {
        "/lib/libvgpu.so",
        "/lib/ld.so.preload",
        "/regions/uid-1_main/vgpu.cache",
    }
    assert {(m.path, m.read_only) for m in slot_mounts("/slots/slot-0000")} == expected


texts = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="="), max_size=20)
contents = st.builds(
    ContainerEdits,
    env=st.lists(st.tuples(texts, st.text(max_size=20)), max_size=4).map(tuple),
    mounts=st.lists(
        st.builds(HostMount, host=texts, path=texts, read_only=st.booleans()), max_size=3
    ).map(tuple),
    nodes=st.lists(st.just(DeviceNode("/dev/x", 1, 2)), max_size=2).map(tuple),
)


@given(contents)
def test_a_document_says_what_its_content_says(content: ContainerEdits) -> None:
    """Nothing is lost or added on the way into a document."""
    document = json.loads(cdi.document("slot-0001", content))

    (device,) = document["devices"]
    edits = device["containerEdits"]
    assert f"{document['kind']}={device['name']}" == cdi.device("slot-0001")
    assert edits["env"] == [f"{name}={value}" for name, value in content.env]
    assert [m["hostPath"] for m in edits.get("mounts", [])] == [m.host for m in content.mounts]
    assert [m["options"][0] == "ro" for m in edits.get("mounts", [])] == [
        m.read_only for m in content.mounts
    ]
    assert len(edits.get("deviceNodes", [])) == len(content.nodes)


def test_a_device_file_makes_no_others() -> None:
    """A container reads and writes its device, and may not make files of that device (mknod)."""
    content = ContainerEdits(
        env=(), mounts=(), nodes=(DeviceNode("/dev/nvidia-caps/nvidia-cap30", 237, 30),)
    )

    (device,) = json.loads(cdi.document("slot-0001", content))["devices"]

    assert device["containerEdits"]["deviceNodes"] == [
        {
            "path": "/dev/nvidia-caps/nvidia-cap30",
            "type": "c",
            "major": 237,
            "minor": 30,
            "permissions": "rw",
        }
    ]


def test_a_document_keeps_to_its_version() -> None:
    """Version 0.3.0 knows no hostPath of nodes, no type of mounts, no dot in a class."""
    content = ContainerEdits(
        env=(("A", "b"),),
        mounts=(HostMount(host="/h", path="/c", read_only=True),),
        nodes=(DeviceNode("/dev/nvidia-caps/nvidia-cap30", 237, 30),),
    )
    document = json.loads(cdi.document("slot-0001", content))

    edits = document["devices"][0]["containerEdits"]
    assert document["cdiVersion"] == "0.3.0"
    assert set(edits) <= {"env", "deviceNodes", "mounts", "hooks"}
    known = "path type major minor fileMode permissions uid gid"
    assert set(edits["deviceNodes"][0]) <= set(known.split())
    assert set(edits["mounts"][0]) <= {"hostPath", "containerPath", "options"}
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]/[A-Za-z][A-Za-z0-9_-]*", cdi.KIND)


def test_no_runtime_reads_a_draft() -> None:
    """Runtimes read what ends in .json or .yaml; drafts are ours to remove all the same."""
    draft = cdi.draft_name("slot-0001")

    assert not draft.endswith((".json", ".yaml"))
    assert cdi.is_ours(draft)
    assert cdi.is_ours(cdi.file_name("slot-0001"))
    assert not cdi.is_ours("nvidia.com-gpu.json")
