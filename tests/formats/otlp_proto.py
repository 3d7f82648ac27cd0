"""What OpenTelemetry's own protobuf says of a document, and its spans in a form that tests can read."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Span", "checked_spans"]


@dataclass(frozen=True)
class Span:
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    start: int
    end: int
    said: dict[str, Any]
    error: str | None  # the message of an error status
    events: list[tuple[str, dict[str, Any]]]


def checked_spans(document: dict[str, Any]) -> list[Span]:
    """The spans of a document that the protobuf takes strictly: no unknown field, no value of another type.

    In OTLP's JSON ids are hex, where the JSON of protobuf has base64: that is the one thing that is changed before.
    """
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    document = json.loads(json.dumps(document))
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        raw = bytes.fromhex(span[key])
                        assert any(raw)
                        assert len(raw) == (16 if key == "traceId" else 8)
                        span[key] = base64.b64encode(raw).decode()
    request = json_format.ParseDict(document, ExportTraceServiceRequest())
    spans = [_span(s) for r in request.resource_spans for scope in r.scope_spans for s in scope.spans]
    ids = {(span.trace, span.id) for span in spans}
    assert len(ids) == len(spans)
    for span in spans:
        assert 0 < span.start <= span.end
        assert not span.parent or (span.trace, span.parent) in ids
    return spans


def _span(span: Any) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _said(span.attributes),
        span.status.message if span.status.code == 2 else None,
        [(event.name, _said(event.attributes)) for event in span.events],
    )


def _said(attributes: Any) -> dict[str, Any]:
    found = {item.key: _value(item.value) for item in attributes}
    assert len(found) == len(attributes)
    return found


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    assert kind is not None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
