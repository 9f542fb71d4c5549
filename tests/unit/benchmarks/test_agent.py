"""The agent's benchmark: what it judges, and that it would see a wrong owner."""

import asyncio
from random import Random

from benchmarks.agent import StartWaits, bars, promise, right
from benchmarks.agent_node import Cost
from tests.integration.agent.starting import Site, running


def test_every_figure_is_judged_at_most() -> None:
    """Each bar holds at its limit and is missed above it."""
    waits = StartWaits(allocate=(20.0,) * 200, prestart=(51.0,) * 200)

    found = bars(waits, 1, Cost(rss_mb=120, cpu_pct=1.1, seconds=40))

    assert {bar.name: bar.holds for bar in found} == {
        "allocate_p99_ms": True,
        "prestart_p99_ms": False,
        "wrong_owner": False,
        "rss_mb": True,
        "cpu_pct": False,
    }


def test_another_ones_content_is_seen() -> None:
    """Whichever shape a container was promised, another pod's document is not its own."""

    async def main() -> None:
        chance = Random(1)  # noqa: S311 -- repeatable shapes
        async with running(count=20) as site:
            helds = []
            for i in range(20):
                promise(site, f"uid-{i}", chance)
                helds.append(await site.kubelet.admit(f"uid-{i}", f"uid-{i}"))
                await site.kubelet.run(helds[-1])
            own = [right(site, held) for held in helds]
            _swap(site)
            others = [right(site, held) for held in helds]

        assert all(own)
        assert not any(others)

    asyncio.run(main())


def _swap(site: Site) -> None:
    """Give every slot the document of the next one."""
    paths = sorted((site.root / "cdi").iterdir())
    texts = [path.read_bytes() for path in paths]
    for path, text in zip(paths, (*texts[1:], texts[0]), strict=True):
        path.write_bytes(text)
