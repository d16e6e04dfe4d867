"""The books: every request is received once and ends once, as completed, rejected, cancelled or failed.

    received = completed + rejected + cancelled + failed + in flight        at every moment, exactly

Labels are routes and outcomes; no text, key or address is ever among them. All of it is counted on the event loop."""

from __future__ import annotations

from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

Outcome = Literal["completed", "rejected", "cancelled", "failed"]
OUTCOMES: tuple[Outcome, ...] = ("completed", "rejected", "cancelled", "failed")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.labelled: dict[tuple[Any, str], Any] = {}
        how: dict[str, Any] = {"registry": self.registry}
        self.received = Counter("glassformer_requests_received", "Requests that came.", ["route"], **how)
        self.ended = {
            outcome: Counter(f"glassformer_requests_{outcome}", f"Requests that were {outcome}.", ["route"], **how)
            for outcome in OUTCOMES
        }
        self.in_flight = Gauge("glassformer_requests_in_flight", "Requests being answered.", **how)
        self.statuses = Counter("glassformer_responses", "Responses by status.", ["status"], **how)
        self.seconds = Histogram(
            "glassformer_request_seconds",
            "From the request to the end of its answer.",
            ["route"],
            buckets=SECONDS,
            **how,
        )
        self.held = Gauge("glassformer_model_held", "Requests a model holds.", ["model"], **how)
        self.steps = Gauge("glassformer_model_steps", "Decoding steps since it was loaded.", ["model"], **how)
        self.loaded = Gauge("glassformer_model_loaded", "Whether the model is in memory.", ["model"], **how)

    def of(self, counter: Any, label: str) -> Any:
        """A counter under a label, looked up once."""
        found = self.labelled.get((counter, label))
        if found is None:
            found = self.labelled[counter, label] = counter.labels(label)
        return found

    def begin(self, route: str) -> None:
        """Counts a request that has come to this route."""
        self.of(self.received, route).inc()
        self.in_flight.inc()

    def end(self, route: str, outcome: Outcome, status: int | None, seconds: float) -> None:
        """Counts how the request ended, with its HTTP status, and how long it took."""
        self.of(self.ended[outcome], route).inc()
        self.in_flight.dec()
        self.of(self.seconds, route).observe(seconds)
        if status is not None:
            self.of(self.statuses, str(status)).inc()

    def text(self) -> bytes:
        """All counters in the text format of Prometheus."""
        return generate_latest(self.registry)
