"""A node is closed while its agent is gone, whatever the API server makes of the call."""

import asyncio

import pytest

from agent.relay.closing_client import close_node
from allocator.ledger.ledger import parse_ledger
from kube.errors import ApiError, InvalidError, NotFoundError, UnreachableError
from tests.fakes.kube_clock import FakeClock
from tests.integration.agent.clusterside import STATUS, Scene, play
from tests.integration.agent.serve.test_handover import CLOSED


def test_a_node_is_closed() -> None:
    """Binds are refused, and the next agent opens it again."""

    async def act(scene: Scene) -> None:
        await scene.told()

        await close_node(scene.client, "n")

        assert parse_ledger(scene.stored).closed == CLOSED
        scene.status_controller = scene.new_status_controller()
        await scene.told()
        assert parse_ledger(scene.stored).closed == ""

    play(act)


def test_an_agent_that_is_overtaken_opens_its_node_again() -> None:
    """The call to close was on its way while the next agent already wrote."""

    async def act(scene: Scene) -> None:
        await scene.told()
        await close_node(scene.client, "n")
        await scene.caught_up()
        await scene.told()
        assert parse_ledger(scene.stored).closed == ""

    play(act)


class Answers:
    """An API server that answers each patch as it is told, one after the other."""

    def __init__(self, *errors: ApiError | UnreachableError | None) -> None:
        self._errors = list(errors)
        self.paths: list[str] = []

    async def json_patch(self, path: str, _: object, **__: object) -> bytes:
        self.paths.append(path)
        if (error := self._errors.pop(0)) is not None:
            raise error
        return b"{}"


@pytest.mark.parametrize(
    "first",
    [
        None,
        InvalidError(422, "Invalid", "remove operation does not apply"),
        NotFoundError(404, "NotFound", 'gpunodes "n" not found'),
    ],
)
def test_a_node_that_is_closed_or_missing_is_left_alone(first: ApiError | None) -> None:
    """One call is enough."""
    answers = Answers(first)

    asyncio.run(close_node(answers, "n"))  # type: ignore[arg-type]

    assert answers.paths == [STATUS]


def test_a_server_that_does_not_answer_is_asked_again() -> None:
    """Until it does, or until the task is cancelled."""
    answers = Answers(
        UnreachableError("no route", sent=False), ApiError(503, "Unavailable", "later"), None
    )

    asyncio.run(close_node(answers, "n", clock=FakeClock().clock()))  # type: ignore[arg-type]

    assert answers.paths == [STATUS] * 3
