"""A new vocabulary is data: a definition in the catalogue, as CONTRIBUTING.md says, and no code."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
PACKAGES = ("agent", "certs", "kube", "manifests", "webhook")
ADDED = """
EXAMPLE: Final = Vocabulary(
    name="example",
    count="example.com/gpus",
    memory="example.com/memory",
    cores="example.com/compute",
    memory_factor=512,
    use_models="example.com/models",
    prefixes=("example.com/g",),
    share_variables=ShareVariables(
        container="EXAMPLE_MINE", pod="EXAMPLE_POD", gpu="EXAMPLE_ALL", index="EXAMPLE_WHICH"
    ),
    slot=SLOT,
)
VOCABULARIES: Final = (VOLCANO, GPUSHARE, EXAMPLE)
"""
QUESTIONS = """
import json
import msgspec
from agent.node.capacity import capacity
from allocator.config.device_config import DeviceConfig, configured_vocabularies
from allocator.config.manifest import apply_defaults
from allocator.config.settings import Settings
from allocator.model.gpu import Gpu, Snapshot
from allocator.model.request import Mode
from allocator.catalog.conditions import asks_for_vgpu
from manifests.generator.policies import REQUEST_KEYS
from webhook.admission.context import AdmissionContext
from webhook.admission.decide import decide
from webhook.review.pod_schema import Pod

settings = Settings()
vocabularies = configured_vocabularies(settings, DeviceConfig(count_name="example.org/slot"))
context = AdmissionContext(
    settings=settings, snapshot=Snapshot(version="1"), vocabularies=vocabularies, host_paths=True
)
limits = {"example.com/gpus": "2", "example.com/memory": "6", "example.com/compute": "30"}
main = {"name": "main", "image": "a", "resources": {"limits": limits}}
notes = {"vgpu-admission.io/mode": "hami-core", "example.com/models": "A100"}
pod = {"metadata": {"name": "p", "annotations": notes}, "spec": {"containers": [main]}}
outcome = decide(msgspec.convert(apply_defaults(pod), Pod), context)
(change,) = outcome.intent.containers
gpu = Gpu(uuid="G", index=0, model="m", memory=4096, mode=Mode.HAMI_CORE, slots=10)
print(json.dumps({
    "request": msgspec.to_builtins(outcome.request.containers[0]),
    "models": outcome.request.filters.models,
    "mode": outcome.intent.annotations["vgpu-admission.io/mode"],
    "env": {e["name"]: e.get("value", "late") for e in change.env},
    "resources": change.resources,
    "condition": asks_for_vgpu(),
    "frozen": sorted(REQUEST_KEYS),
    "capacity": capacity([gpu], vocabularies),
}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a tree says whose only change is the vocabulary in the catalogue."""
    tree = tmp_path_factory.mktemp("tree")
    for name in PACKAGES:
        (tree / name).symlink_to(ROOT / name)
    for part, root in (("allocator", ROOT), ("allocator/catalog", ROOT)):
        (tree / part).mkdir()
        for path in (root / part).iterdir():
            if path.name not in {"catalog", "vocabularies.py", "__pycache__"}:
                (tree / part / path.name).symlink_to(path)
    catalogue = (ROOT / "allocator/catalog/vocabularies.py").read_text()
    line = "VOCABULARIES: Final = (VOLCANO, GPUSHARE, METAX_GPU, METAX_SGPU)\n"
    assert catalogue.count(line) == 1
    (tree / "allocator/catalog/vocabularies.py").write_text(catalogue.replace(line, ADDED))
    asked = subprocess.run(
        [sys.executable, "-c", QUESTIONS],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    found: dict[str, Any] = json.loads(asked.stdout)
    return found


def test_a_pod_is_read_and_rewritten_in_it(answers: dict[str, Any]) -> None:
    """Its resources count, its filter holds, our annotation names its mode, it gets a slot."""
    asked = answers["request"]

    assert (asked["count"], asked["memory"], asked["cores"]) == (2, 3072, 30)
    assert (answers["models"], answers["mode"]) == (["A100"], "hami-core")
    assert answers["resources"] == {"example.org/slot": "2"}


def test_its_programs_find_their_variables(answers: dict[str, Any]) -> None:
    """Limits are hami-core's, and the share is told under the vocabulary's own names."""
    env = answers["env"]

    assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3072m"
    assert {name: env[name] for name in env if name.startswith("EXAMPLE_")} == {
        "EXAMPLE_MINE": "6",
        "EXAMPLE_POD": "6",
        "EXAMPLE_ALL": "late",
        "EXAMPLE_WHICH": "late",
    }
    assert not [name for name in env if name.startswith("ALIYUN")]


def test_the_api_server_sends_its_pods_and_freezes_its_annotations(answers: dict[str, Any]) -> None:
    """The generated manifests cover it, by its prefix and by the names outside of it."""
    assert "r.startsWith('example.com/g')" in answers["condition"]
    assert "r == 'example.com/memory'" in answers["condition"]
    assert "example.com/models" in answers["frozen"]


def test_nodes_offer_its_resources(answers: dict[str, Any]) -> None:
    """Without capacity no scheduler would place its pods: 4096 MiB are 8 units for 10 shares."""
    offered = answers["capacity"]

    assert {name: offered[name] for name in offered if name.startswith("example.com/")} == {
        "example.com/gpus": 10,
        "example.com/memory": 8,
        "example.com/compute": 100,
    }
