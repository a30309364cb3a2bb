"""The `http` sink: posts each event, or each batch, to a URL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cloudevents.core.v1.event import CloudEvent
from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from urllib3.util import Url, parse_url

from inbound.config.http_values import HeaderFile, header_names, header_value, http_url
from inbound.config.values import StrictModel, duration, refuse
from inbound.processors.base import Context
from inbound.processors.batch import Batch, Record
from inbound.processors.cloudevents_http import HttpMessage, encode_batch, encode_binary, encode_structured
from inbound.processors.http_headers import header_text, tls_context
from inbound.processors.sinks.base import BatchEventSink, EventSink, Sink
from inbound.processors.sinks.http_client import HttpClient
from inbound.processors.spans import Spans, posted


class HttpOptions(StrictModel):
    """URL, encoding, timeouts and credentials of the `http` sink."""

    url: Annotated[str, BeforeValidator(http_url)] = Field(
        repr=False, description="http or https; redirects are not followed"
    )
    mode: Literal["binary", "structured"] = Field(
        default="binary", description="attributes as headers and data as the body, or the whole event as JSON"
    )
    batch: bool = Field(
        default=False, description="one request for each batch, a JSON array: only for receivers that asked for it"
    )
    headers: Annotated[
        dict[str, Annotated[str | HeaderFile, BeforeValidator(header_value)]], AfterValidator(header_names)
    ] = Field(default_factory=dict, repr=False, description="sent with every request; {file: path} for secrets")
    connect_timeout: Annotated[float, duration(over=True)] = Field(default=5.0, description="time to get a connection")
    timeout: Annotated[float, duration(over=True)] = Field(default=30.0, description="time for the whole request")
    ca_file: Path | None = Field(
        default=None, description="authorities of the receiver's certificate; default: the system's"
    )
    client_cert: Path | None = Field(default=None, description="the client's certificate, PEM; it may hold the key too")
    client_key: Path | None = Field(default=None, description="the key of `client_cert`, PEM, without passphrase")

    @model_validator(mode="after")
    def _check(self) -> HttpOptions:
        is_https = self.url.lower().startswith("https:")
        refuse(
            "HttpOptions",
            (
                self.batch and "mode" in self.model_fields_set,
                "mode",
                "is for single events, but batch is true; remove one of the two",
            ),
            (self.client_key and not self.client_cert, "client_key", "is used only with client_cert; give that too"),
            *(
                (
                    getattr(self, name) and not is_https,
                    name,
                    "is used only where url is https; change one of the two",
                )
                for name in ("ca_file", "client_cert")
            ),
        )
        return self


class _Posting(Sink):
    """Base of both `http` sinks: the client, and spans."""

    Options = HttpOptions

    def open(self, context: Context) -> None:
        """Read the options' files. Raises ConfigError; the receiver may be unavailable."""
        options: HttpOptions = context.options
        self._encode = encode_binary if options.mode == "binary" else encode_structured
        url: Url = parse_url(options.url)
        tls = None
        if url.scheme == "https":
            tls = tls_context("http sink", options.ca_file, options.client_cert, options.client_key)
        self._client = HttpClient(
            url,
            headers={name: header_text("http sink", name, value) for name, value in options.headers.items()},
            connect_timeout=options.connect_timeout,
            timeout=options.timeout,
            tls=tls,
        )
        self._tracing = context.tracing

    def close(self) -> None:
        self._client.close()


class HttpSink(_Posting, EventSink):
    """Posts each event to a URL.

    2xx is success, anything else an error. The sink tries nothing twice.
    """

    @classmethod
    def made_for(cls, options: HttpOptions) -> HttpSink | HttpBatchSink:
        return HttpBatchSink() if options.batch else cls()

    def send(self, event: CloudEvent) -> None:
        """Post `event`. Raises SinkError, or ValueError if HTTP cannot carry it."""
        self._client.check(self._client.post(self._encode(event)))

    def send_record(self, event: CloudEvent, record: Record) -> None:
        """Do as `send`, in the trace of the record."""
        spans = self._tracing.spans
        if spans is None or type(self).send is not HttpSink.send:  # a subclass has its own `send`
            self.send(event)
        else:
            _deliver(self._client, spans, self._encode(event), [event], [record])


class HttpBatchSink(_Posting, BatchEventSink):
    """Posts all events of a batch in one request."""

    takes_other_records = False

    def send(self, batch: Batch) -> None:
        """Post the events. Raises SinkError, or ValueError if JSON cannot carry them."""
        if not batch.events:
            return
        spans = self._tracing.spans
        message = encode_batch(batch.events)
        if spans is None:
            self._client.check(self._client.post(message))
        else:
            _deliver(self._client, spans, message, batch.events, batch.event_records)


def _deliver(
    client: HttpClient, spans: Spans, message: HttpMessage, events: Sequence[CloudEvent], records: Sequence[Record]
) -> None:
    """Post `message` in a span. Raises SinkError unless the answer is 2xx."""
    # The event's own extension, which names its origin; several events may have different traces.
    began = (
        [(name, events[0].get_extension(name)) for name in ("traceparent", "tracestate")] if len(events) == 1 else []
    )
    lines = [f"{name}: {value}".encode() for name, value in began if value is not None]
    client.check(posted(client.post, message, spans.deliver(client, records, lines)))
