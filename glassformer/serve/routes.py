"""Routes and their schemas, for OpenAPI; and what they answer: JSON, an error in the dialect of its path, server-sent events."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from glassformer.serve.requests import APIError, read_as

JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
OBJECT = {JSON: {"type": "object"}}
DONE = b"data: [DONE]\n\n"  # the last event of a stream, as OpenAI's clients expect it
OPENAI_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
}
LIBRE_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
ERRORS = (400, 403, 404, 408, 413, 429, 500, 503, 504)


def as_json(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A response in JSON, in UTF-8 as it is."""
    return Response(msgspec.json.encode(value), status, headers, media_type=JSON)


def error_response(error: APIError, path: str) -> Response:
    """An error as the clients of a path read it, with Retry-After where coming again helps."""
    headers = {} if error.retry is None else {"Retry-After": str(error.retry)}
    return as_json(error.in_dialect(path), error.status, headers)


def event_of(value: Any) -> bytes:
    """One server-sent event, in JSON."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


class EventStream(Response):
    """Server-sent events, one as soon as it is there. The status is settled by the first of them: an error before it has a
    response of its own. (Starlette's StreamingResponse sends the status before it asks for anything.) However it ends,
    `cancel` is called: the job does not go on for nobody."""

    def __init__(self, events: AsyncIterator[bytes], cancel: Callable[[], None]) -> None:
        self.events, self.cancel = events, cancel
        super().__init__(headers={"Content-Type": EVENTS, "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until there are no more."""
        started = False
        try:
            async for event in self.events:
                if not started:
                    started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": event, "more_body": True})
        finally:
            self.cancel()
        await send({"type": "http.response.body", "body": b""})


class Endpoint(Route):
    """A route whose method is given the parts of the path, `fields` in the schema it is annotated with, and `request`, as far
    as it has parameters of these names; what it returns is a response, or a value for JSON. `responses`: the schemas of its
    answers by media type, for OpenAPI; without them the document says nothing of the route."""

    def __init__(
        self,
        verb: str,
        path: str,
        responses: dict[str, Any] | None,
        method: Callable[..., Any],
        *,
        schema: dict[str, Any] | None = None,
        media_types: tuple[str, ...] = (JSON,),
        errors: tuple[int, ...] = ERRORS,
    ) -> None:
        parameters = inspect.signature(method).parameters
        fields: type[BaseModel] | None = get_type_hints(method).get("fields")

        async def endpoint(request: Request) -> Response:
            given: dict[str, Any] = dict(request.path_params)
            if fields is not None:
                given["fields"] = await read_as(request, fields)
            if "request" in parameters:
                given["request"] = request
            value = await method(**given)
            return value if isinstance(value, Response) else as_json(value)

        super().__init__(path, endpoint, methods=[verb])
        self.operation: dict[str, Any] | None = None
        if responses is None:
            return
        error = {JSON: {"schema": OPENAI_ERROR if path.startswith("/v1") else LIBRE_ERROR}}
        content = {media_type: {"schema": schema} if schema else {} for media_type, schema in responses.items()}
        statuses: dict[str, Any] = {"200": {"description": "answered", "content": content}}
        for status in sorted({*errors, *([401] if path.startswith("/v1") else [])}):
            statuses[str(status)] = {"description": "refused", "content": error}
        self.operation = {
            "summary": method.__name__.replace("_", " ").capitalize(),
            "description": inspect.getdoc(method),
            "responses": statuses,
        }
        if "{name}" in path:
            self.operation["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
            ]
        if fields is not None:
            schema = fields.model_json_schema()
        if schema is not None:
            content = {media_type: {"schema": schema} for media_type in media_types}
            self.operation["requestBody"] = {"required": True, "content": content}


def route(verb: str, path: str, responses: dict[str, Any] | None = None, **about: Any) -> Callable[[Any], Any]:
    """A decorator that makes a method the endpoint of a path, or of several; see `Endpoint`."""

    def mark(method: Any) -> Any:
        method.endpoints = [partial(Endpoint, verb, path, responses, **about), *getattr(method, "endpoints", [])]
        return method

    return mark


get, post = partial(route, "GET"), partial(route, "POST")


def routes_of(home: object) -> list[Route]:
    """The routes of an object, in the order in which its class has them."""
    methods = [getattr(home, name) for name, method in vars(type(home)).items() if hasattr(method, "endpoints")]
    return [endpoint(method) for method in methods for endpoint in method.endpoints]


def openapi(routes: Iterable[Any], version: str) -> dict[str, Any]:
    """The document of all routes that say something of themselves."""
    paths = {
        route.path: {"get" if "GET" in route.methods else "post": route.operation}
        for route in routes
        if route.operation
    }
    return {"openapi": "3.1.0", "info": {"title": "glassformer", "version": version}, "paths": paths}
