"""An asynchronous processor: posts each record to an HTTP server, many requests at a time, without a thread for each.

Only asyncio is used, to show what inbound asks for: `async def`. With an HTTP library (httpx, aiohttp) make its client in
`open` and close it in `close`; both run on the loop that the batches run on.
"""

from __future__ import annotations

import asyncio
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from inbound import Batch, BatchEventProcessor, BatchResponse, Context, Record


class Options(BaseModel):
    """What the configuration may set under `processor.options`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(description="where to post, such as http://127.0.0.1:8080/orders")
    at_once: int = Field(default=50, ge=1, description="requests under way at the same time, over all partitions")
    timeout: float = Field(default=10.0, gt=0, description="seconds that one request may take")

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"need http://HOST:PORT/PATH, got {url!r}")
        return url


class Posting(BatchEventProcessor):
    """Posts the records of a batch concurrently, and commits up to the first one that was not taken."""

    Options = Options

    async def open(self, context: Context) -> None:
        self._context = context
        self._options: Options = context.options
        self._url = urlsplit(self._options.url)
        self._free = asyncio.Semaphore(self._options.at_once)

    async def on_next_batch(self, batch: Batch) -> BatchResponse:
        results = await asyncio.gather(*map(self._send, batch.records), return_exceptions=True)
        for record, result in zip(batch.records, results, strict=True):
            if isinstance(result, BaseException):
                self._context.log.warning(
                    "%s/%d@%d was not taken: %r; posted again in 1 s",
                    batch.topic,
                    batch.partition,
                    record.offset,
                    result,
                )
                # What comes after it may have been taken; it is posted again too: at least once.
                return BatchResponse.advance(record.offset, wait=1.0)
        return BatchResponse.advance()

    async def _send(self, record: Record) -> None:
        async with self._free, asyncio.timeout(self._options.timeout):
            await post(self._url, record.value or b"")


async def post(url: SplitResult, body: bytes) -> None:
    """Post `body`. Raises OSError if no server answers, ConnectionError if the answer is not 2xx."""
    reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
    try:
        writer.write(
            f"POST {url.path or '/'} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/octet-stream\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        status = (await reader.readline()).split()
        if len(status) < 2 or not status[1].startswith(b"2"):
            raise ConnectionError(
                f"{url.geturl()} answered {b' '.join(status[1:]).decode(errors='replace') or 'nothing'}"
            )
    finally:
        writer.close()
