"""What a request says, how much of anything is taken, and what is answered: routes with their schemas, JSON, server-sent events,
and the error for a request that is not answered as asked."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_type_hints
from urllib.parse import parse_qs

import msgspec
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from glassformer.errors import UserError
from glassformer.tasks import check_text

Fields = TypeVar("Fields", bound=msgspec.Struct)
MOST_FIELDS = 1000
PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|/)[^\s,;'\"]*[\\/][^\s,;'\"]*")
"""Where files lie is nobody's business outside."""
JSON, EVENTS = "application/json", "text/event-stream; charset=utf-8"
OBJECT = {JSON: {"type": "object"}}
DONE = b"data: [DONE]\n\n"  # the last event of a stream, as OpenAI's clients expect it
STATUSES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""OpenAI's types of errors, by their status."""


class APIError(Exception):
    """A request that is not answered as asked. `param` is the field at fault, `code` OpenAI's word for it, `retry` in how many
    seconds coming again helps."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None, retry: int | None = None
    ) -> None:
        message = message.encode("utf-8", "replace").decode()  # a name that was asked for may hold half a character
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    def in_dialect(self, path: str) -> dict[str, Any]:
        """The body as the clients of a path expect it."""
        if not path.startswith("/v1"):
            return {"error": self.message}
        error_type = STATUSES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": error_type, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> APIError:
    """The error for a request that asks for what cannot be."""
    return APIError(400, message, param=param, code=code)


def bad_field(name: str | None, problem: str, code: str | None = None) -> APIError:
    """The error for a field that asks for what cannot be."""
    return bad_request(f"{name}: {problem}", name, code)


def as_api_error(error: BaseException) -> APIError:
    """What an error is called outside. A mistake of the client is told as it is; anything else is ours, and says nothing of
    what was asked."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, UserError):
        return bad_request(PATH.sub("a file of this server", str(error)))
    if isinstance(error, HTTPException):  # of Starlette's router
        return APIError(error.status_code, "this path has nothing, or is asked in another way; see /docs")
    if isinstance(error, MemoryError):
        return APIError(500, "there was not enough memory to answer this; ask for less at a time")
    return APIError(500, "something went wrong inside while answering this; it is in the server's log")


# ---- limits


def check_at_most(name: str, value: int | None, most: int) -> None:
    """Refuse a field that asks for more than is given."""
    if (value or 0) > most:
        raise bad_field(name, f"at most {most} are given here")


@dataclass(frozen=True)
class Limits:
    """The bounds of one server; each can be changed by an option of `glassformer serve` of the same name. What goes beyond is
    refused at once and in words."""

    queue: int = 256  # requests a model holds at a time, being answered or waiting; one more is told to come again
    body: int = 1 << 20  # bytes of a request
    file: int = 1 << 20  # bytes of a file to be translated
    file_seconds: float = 10.0  # of processor time, to read a file and again to write it
    file_memory: int = 1 << 30  # bytes for either
    text: int = 20_000  # characters of one text
    batch: int = 128  # texts of one request
    total: int = 200_000  # characters of all texts of one request
    rows: int = 2048  # lines and sentences that they are cut into, or completions to be written
    alternatives: int = 10
    choices: int = 16  # n and num_beams
    logprobs: int = 20
    new_tokens: int = 4096
    stops: int = 4
    glossary: int = 100  # terms
    seconds: float = 60.0  # that an answer may take
    read_seconds: float = 10.0  # in which a request must have arrived, head and body each
    connections: int = 1024
    drain_seconds: float = 20.0  # after SIGTERM, for what is under way
    memory: int | None = None  # bytes of weights held at a time; None: all runs stay
    hung_seconds: float = 8.0  # a worker that has not moved for so long is not ready
    dead_seconds: float = 60.0  # ... and for so long, not alive

    def check_texts(self, texts: Sequence[str], param: str) -> None:
        """Refuse what is no text, and more than is taken."""
        if len(texts) > self.batch:
            problem = f"{len(texts)} texts are more than the {self.batch} this server takes at a time"
        elif (longest := max(map(len, texts), default=0)) > self.text:
            problem = f"a text of {longest:,} characters is longer than the {self.text:,} taken here"
        elif sum(map(len, texts)) > self.total:
            problem = f"the texts together are longer than the {self.total:,} characters taken here"
        else:
            for text in texts:
                check_text(text)
            return
        raise bad_field(param, problem)

    def check_rows(self, count: int) -> None:
        """Refuse texts of more lines or sentences than are decoded for one request."""
        if count > self.rows:
            most = f"the {self.rows:,} lines or sentences taken at a time"
            raise bad_request(f"the texts of this request are more than {most}; send them in parts")

    def check_glossary(self, glossary: dict[str, str]) -> None:
        """Refuse more terms, or longer ones, than are taken."""
        if len(glossary) > self.glossary or any(len(k) + len(v) > 200 for k, v in glossary.items()):
            raise bad_field("glossary", f"at most {self.glossary} terms of 200 characters are taken here")


# ---- fields


def from_pairs(content: bytes) -> dict[str, Any]:
    """The fields of a query or a form: a name that comes several times is a list."""
    try:
        fields = parse_qs(content.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:  # UnicodeDecodeError is one
        raise bad_request("the query or form cannot be read: it is not UTF-8, or has too many fields") from None
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def from_json(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise bad_request("the body is not JSON that can be read") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object, with a name for each value")
    return value


async def read_fields(request: Request) -> dict[str, Any]:
    """Everything a request says, by name, as JSON, a form or the query; the body's word counts before the query's."""
    query = from_pairs(request.scope["query_string"])
    body = await request.body()
    if not body:
        return query
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "multipart/form-data":
        try:
            form = await request.form(max_files=4, max_fields=MOST_FIELDS)
        except (MultiPartException, HTTPException, KeyError, ValueError):
            raise bad_request("the form cannot be read: it is not multipart as its header says") from None
        return query | dict(form.multi_items())
    if media_type == "application/x-www-form-urlencoded":
        return query | from_pairs(body)
    if media_type in ("application/json", "") or media_type.endswith("+json") or body.lstrip()[:1] == b"{":
        return query | from_json(body)
    raise bad_request("the body must be JSON or a form, and its Content-Type must say which")


async def read_as(request: Request, schema: type[Fields]) -> Fields:
    """What a request says, held against its schema; the first thing wrong is told by its name. A form and a query have
    numbers as text, which are taken in JSON, too."""
    values = await read_fields(request)
    try:
        return msgspec.convert({k: v for k, v in values.items() if not isinstance(v, UploadFile)}, schema, strict=False)
    except msgspec.ValidationError as error:
        problem = str(error)
    field = re.search(r"(?:field `|`\$\.)(\w+)", problem)
    if field is not None and "missing required" in problem:
        raise bad_request(f"Invalid request: missing {field[1]} parameter", field[1])  # as LibreTranslate says it
    raise bad_field(field and field[1], problem.partition(" - at ")[0].lower())


# ---- routes


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
    ) -> None:
        parameters = inspect.signature(method).parameters
        fields: type[msgspec.Struct] | None = get_type_hints(method).get("fields")

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
        error = {"type": "object", "required": ["error"]}
        content = {media_type: {"schema": answer} if answer else {} for media_type, answer in responses.items()}
        self.operation = {
            "summary": method.__name__.replace("_", " ").capitalize(),
            "description": inspect.getdoc(method),
            "responses": {
                "200": {"description": "answered", "content": content},
                "default": {"description": "refused", "content": {JSON: {"schema": error}}},
            },
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in self.param_convertors
            ],
        }
        if fields is not None:
            schema = msgspec.json.schema(fields)["$defs"][fields.__name__]
        if schema is not None:
            body = {media_type: {"schema": schema} for media_type in media_types}
            self.operation["requestBody"] = {"required": True, "content": body}


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
