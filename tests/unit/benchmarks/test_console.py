"""The benchmark of the console: what it measures is what a person runs, and how it judges."""

from pathlib import Path

import orjson
import pytest

from benchmarks.console import COMMANDS, LIMITS, CommandError, bars, plugin_environment, run_seconds
from benchmarks.console_server import NAMESPACE, WAITING, cluster, served


def test_medians_are_judged_against_the_limits() -> None:
    """One slow run is no miss, and each command has a limit."""
    judged = bars({name: [0.0, 0.1, 9.0] for name in COMMANDS})
    missed = bars(dict.fromkeys(COMMANDS, (9.0,)))

    assert {bar.name: bar.limit for bar in judged} == {
        "help_cpu_s": 0.4,
        "why_cpu_s": 0.8,
        "get_pods_2000_cpu_s": 1.2,
        "decisions_1000_cpu_s": 0.8,
    }
    assert set(LIMITS) == set(COMMANDS)
    assert all(bar.holds for bar in judged)
    assert not any(bar.holds for bar in missed)


def test_the_server_pages_its_lists() -> None:
    """As the API server does; what it does not hold is not found."""
    kept = cluster(20)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"

    _, first = kept.answer(path, {"limit": ["15"]})
    _, second = kept.answer(path, {"limit": ["15"], "continue": ["15"]})

    pages = [orjson.loads(first), orjson.loads(second)]
    assert [len(page["items"]) for page in pages] == [15, 6]
    assert [page["metadata"].get("continue") for page in pages] == ["15", None]
    assert kept.answer("/nowhere", {})[0] == 404


def test_a_command_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    """Its time is that of the whole process, and a command that fails is no figure."""
    with served(cluster(8, 1000), tmp_path) as kubeconfig:
        environment = plugin_environment(kubeconfig)

        assert 0 < run_seconds("why_cpu_s", environment) < 60
        assert 0 < run_seconds("decisions_1000_cpu_s", environment) < 60
        with pytest.raises(CommandError, match=WAITING):
            run_seconds("why_cpu_s", {**environment, "KUBECONFIG": "/nowhere"})
        with pytest.raises(CommandError, match="ended with 0"):
            run_seconds("get_pods_2000_cpu_s", environment)  # there are 8
