"""The timeline of the demo's day."""

import asyncio
from datetime import UTC, datetime, timedelta

from demo.timeline import Step, Timeline

END = datetime(2026, 11, 24, 23, 0, tzinfo=UTC)


def test_steps_happen_in_time_and_then_in_order() -> None:
    """A step may plan others, and what is due after the day is left out."""
    timeline = Timeline(END)
    done: list[tuple[str, datetime]] = []

    def note(name: str, plans: str = "") -> Step:
        async def carry_out() -> None:
            done.append((name, timeline.now()))
            if plans:
                timeline.after(90, note(plans))

        return carry_out

    timeline.at(timeline.time("01:00"), note("first", plans="third"))
    timeline.at(timeline.time("01:00"), note("second"))
    timeline.at(END, note("late"))
    asyncio.run(timeline.run())

    one = timeline.begin + timedelta(hours=1)
    assert done == [("first", one), ("second", one), ("third", one + timedelta(seconds=90))]
    assert timeline.now() == END


def test_its_clock_sleeps_without_waiting() -> None:
    """An hour of the story passes at once, and time never goes back."""
    timeline = Timeline(END)
    clock = timeline.clock

    async def rest() -> None:
        await clock.sleep(3600)

    asyncio.run(rest())

    assert clock.wall() == timeline.begin + timedelta(hours=1)
    assert clock.monotonic() == clock.wall().timestamp()
