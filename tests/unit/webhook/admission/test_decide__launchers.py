"""Who gets several shared GPUs and starts one process for each is warned, and nobody else."""

import pytest

from allocator.catalog.launchers import MOST_BYTES
from tests.builders.pods import CORES, MEMORY, MODE, NUMBER, Json, container, decided, pod
from tests.unit.webhook.admission.test_decide import UNKNOWN
from webhook.admission.outcome import Rewritten

TWO: Json = {NUMBER: 2, MEMORY: 3000}
SOFT = {MODE: "hami-core"}


def launcher_of(
    more: Json, limits: Json | None = None, annotations: dict[str, str] | None = None
) -> str:
    """Return which launcher a pod of one container is warned of; empty if it is not."""
    asking = container(limits=limits or TWO) | more
    outcome = decided(pod(asking, annotations=annotations or SOFT), UNKNOWN)
    assert isinstance(outcome, Rewritten), outcome
    told = [text for text in outcome.warnings if "CUDA_VISIBLE_DEVICES" in text]
    return told[0].removeprefix('container "main": ').partition(" gives each")[0] if told else ""


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["torchrun", "--nproc-per-node=2", "train.py"], "torchrun"),
        (["/opt/conda/bin/torchrun", "train.py"], "torchrun"),
        (["python", "-m", "torch.distributed.run", "train.py"], "torch.distributed.run"),
        (["python3", "-m", "torch.distributed.launch"], "torch.distributed.launch"),
        (["sh", "-c", "cd /app && torchrun train.py"], "torchrun"),
        (["deepspeed", "train.py"], "deepspeed"),
        (["accelerate", "launch", "train.py"], "accelerate launch"),
        (["bash", "-c", "accelerate  launch train.py"], "accelerate  launch"),
        (["mpirun", "-np", "2", "./a.out"], "mpirun"),
        (["mpiexec", "-n", "2"], "mpiexec"),
        (["horovodrun", "-np", "2"], "horovodrun"),
        (["ray", "start", "--head"], "ray start"),
        (["vllm", "serve", "model"], "vllm serve"),
        (["python", "-m", "vllm.entrypoints.openai.api_server"], "vllm.entrypoints"),
        (["--model", "m", "--tensor-parallel-size=2"], "--tensor-parallel-size"),
        (["--tensor-parallel-size", "2"], "--tensor-parallel-size"),
    ],
)
@pytest.mark.parametrize("field", ["command", "args"])
def test_a_launcher_is_recognised(field: str, command: list[str], launcher: str) -> None:
    """By what it is called by, wherever in a command that stands."""
    assert launcher_of({field: command}) == launcher


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["my-torchrun-wrapper"],
        ["/data/ray/results"],
        ["array", "start"],
        ["ray"],
        ["accelerate", "config"],
        ["vllm-bench"],
        ["torchrunner"],
        ["--no-tensor-parallel-size"],
        ["x" * MOST_BYTES, "torchrun"],
        [],
    ],
)
def test_a_word_that_looks_like_one_is_none(command: list[str]) -> None:
    """Nor is one behind more text than is looked at."""
    assert launcher_of({"command": command}) == ""


@pytest.mark.parametrize("name", ["NPROC_PER_NODE", "PET_NPROC_PER_NODE", "LOCAL_WORLD_SIZE"])
def test_a_variable_of_a_launcher_is_recognised(name: str) -> None:
    """Where the image's own program calls it."""
    assert launcher_of({"env": [{"name": name, "value": "2"}]}) == name
    assert launcher_of({"env": [{"name": f"MY_{name}", "value": "2"}]}) == ""


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [
        pytest.param({NUMBER: 1, MEMORY: 3000}, SOFT, id="one-gpu"),
        pytest.param({NUMBER: 2, MEMORY: 3000}, {MODE: "mig"}, id="mig"),
        pytest.param(
            {NUMBER: 2, CORES: 100}, {"vgpu-admission.io/library": "off"}, id="without-the-library"
        ),
    ],
)
def test_who_has_no_such_limits_is_not_warned(limits: Json, annotations: dict[str, str]) -> None:
    """One GPU is the first; an instance and a GPU without the library are not counted by it."""
    assert launcher_of({"command": ["torchrun"]}, limits, annotations) == ""


def test_a_container_beside_it_is_none_of_its_business() -> None:
    """Each is warned for its own command."""
    asking, side = container(limits=TWO), container("side", command=["torchrun"])
    outcome = decided(pod(asking, side, annotations=SOFT), UNKNOWN)

    assert isinstance(outcome, Rewritten)
    assert not any("torchrun" in text for text in outcome.warnings)


@pytest.mark.parametrize("command", [None, ["\U0001f680 torchrun\x00"], ['"', "torchrun"]])
def test_odd_commands_are_read(command: list[str] | None) -> None:
    """JSON in JSON, and characters that are none of ASCII."""
    assert launcher_of({"command": command}) == ("torchrun" if command else "")
