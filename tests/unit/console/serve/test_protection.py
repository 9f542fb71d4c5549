"""What a request must be before any page sees it."""

import asyncio

import pytest
from starlette.responses import Response

from console.serve.protection import AnswerPlaces, TooManyAnswersError, names_loopback


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("LocalHost:8444", True),
        ("127.0.0.1:1", True),
        ("127.8.8.8", True),
        ("[::1]", True),
        ("[::1]:8444", True),
        ("", False),
        ("0.0.0.0", False),  # noqa: S104 -- a name, not a place to listen
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("evil.example:127", False),
        ("127.0.0.1.evil.example", False),
        ("evil@localhost:x@evil.example", False),
        ("[::1", False),
        ("[::1].evil.example", False),
        ("::1", False),
        ("2130706433", False),
        ("0x7f.1", False),
        ("localhost/../evil", False),
    ],
)
def test_only_names_of_this_machine_are_loopback(host: str, *, loopback: bool) -> None:
    """A browser that was lured here by another name says that name."""
    assert names_loopback(host) is loopback


def test_all_together_have_so_many_places_and_everybody_has_one() -> None:
    """Somebody may have many names. Each answer gives its place back."""

    async def made() -> Response:
        return Response("text")

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def ignore(_: object) -> None:
        pass

    async def scenario() -> None:
        places = AnswerPlaces(of_viewer=2, of_all=4)
        held = [await places.answer(user, made) for user in ("a", "a", "b", "c")]
        with pytest.raises(
            TooManyAnswersError, match=r"^2 answers to you are under way; ask again$"
        ):
            await places.answer("a", made)
        with pytest.raises(TooManyAnswersError, match=r"^4 answers are under way; ask again$"):
            await places.answer("c", made)
        await (await places.answer("d", made))({"type": "http"}, receive, ignore)
        sent: list[object] = []

        async def send(message: object) -> None:
            sent.append(message)
            with pytest.raises(TooManyAnswersError):  # its place is taken until all is sent
                await places.answer("a", made)

        await held[0]({"type": "http"}, receive, send)
        assert [message["type"] for message in sent if isinstance(message, dict)] == [
            "http.response.start",
            "http.response.body",
        ]
        await places.answer("a", made)
        with pytest.raises(TooManyAnswersError, match=r"^2 answers to you"):
            await places.answer("a", made)

    asyncio.run(scenario())


def test_whoever_goes_while_an_answer_is_sent_gives_its_place_back() -> None:
    """And so does an answer that could not be made."""

    async def made() -> Response:
        return Response("text")

    async def failed() -> Response:
        raise OSError("down")

    async def gone(_: object) -> None:
        raise OSError("gone")

    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def scenario() -> None:
        places = AnswerPlaces(of_viewer=1, of_all=1)
        for _ in range(3):
            answer = await places.answer("a", made)
            with pytest.raises(OSError, match="gone"):
                await answer({"type": "http"}, receive, gone)
            with pytest.raises(OSError, match="down"):
                await places.answer("a", failed)

    asyncio.run(scenario())
