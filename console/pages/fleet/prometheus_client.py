"""Asks Prometheus: questions of ours, never those of a browser, and bounded answers."""

from dataclasses import dataclass
from typing import Final

import aiohttp
import msgspec

MOST_ANSWER: Final = 8 * 1024 * 1024  # bytes
SECONDS: Final = 4.0
_PATH: Final = "/api/v1/query"


class PrometheusError(Exception):
    """Prometheus cannot be asked, or did not answer as it should; says why."""


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """Prometheus at an address such as http://prometheus.monitoring:9090."""

    address: str

    async def query(self, question: str) -> object:
        """Return the answer to a question of PromQL; raises :class:`PrometheusError`."""
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        url = self.address.rstrip("/") + _PATH
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
                session.post(url, data={"query": question}, allow_redirects=False) as answer,
            ):
                body = await _bounded(answer)
                if not answer.ok:
                    raise PrometheusError(f"{url} answered {answer.status}")
                decoded: object = msgspec.json.decode(body)
                return decoded
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError, RecursionError) as error:
            raise PrometheusError(f"{url}: {type(error).__name__} {error}".strip()) from error


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_chunked(65536):
        body += part
        if len(body) > MOST_ANSWER:
            raise PrometheusError(f"an answer has more than {MOST_ANSWER} bytes")
    return bytes(body)
