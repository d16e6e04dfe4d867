"""What a request says, whichever way it says it: JSON, a form, or the query; and routes with their schema, for OpenAPI."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.serve.api_errors import APIError, bad_request

Fields = TypeVar("Fields", bound=BaseModel)
MOST_FIELDS = 1000


def from_pairs(text: str) -> dict[str, Any]:
    """A query or a form: a name that comes several times is a list."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise bad_request("the query or form cannot be read: it is not UTF-8, or has too many fields") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            fields[name] = [*(fields[name] if isinstance(fields[name], list) else [fields[name]]), value]
        else:
            fields[name] = value
    return fields


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
    """Everything a request says, by name; the body's word counts before the query's."""
    query = from_pairs(request.scope["query_string"].decode("latin-1"))
    body = await request.body()
    if not body:
        return query
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        try:
            form = await request.form(max_files=4, max_fields=MOST_FIELDS)
        except (MultiPartException, HTTPException, KeyError, ValueError):
            raise bad_request("the form cannot be read: it is not multipart as its header says") from None
        return query | dict(form.multi_items())
    if kind == "application/x-www-form-urlencoded":
        try:
            return query | from_pairs(body.decode("utf-8"))
        except UnicodeDecodeError:
            raise bad_request("the form is not UTF-8") from None
    if kind in ("application/json", "") or kind.endswith("+json") or body.lstrip()[:1] == b"{":
        return query | from_json(body)
    raise bad_request("the body must be JSON or a form, and its Content-Type must say which")


def missing(name: str) -> APIError:
    """What LibreTranslate says where a field is not there."""
    return bad_request(f"Invalid request: missing {name} parameter", name)


async def read_as(request: Request, kind: type[Fields]) -> Fields:
    """What a request says, held against its schema; the first thing wrong is told by its name."""
    values = await read_fields(request)
    try:
        return kind.model_validate({k: v for k, v in values.items() if not isinstance(v, UploadFile)})
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = str(wrong["loc"][0]) if wrong["loc"] else None
        if wrong["type"] == "missing":
            raise missing(name or "body") from None
        raise bad_request(f"{name}: {wrong['msg'][:1].lower()}{wrong['msg'][1:200]}", name) from None


def check_at_most(name: str, value: int | None, most: int) -> None:
    """Refuse a field that asks for more than is given."""
    if (value or 0) > most:
        raise bad_request(f"{name}: at most {most} are given here", name)


# ---- OpenAPI

OPENAI_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
}
LIBRE_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
ERRORS = (400, 403, 404, 408, 413, 429, 500, 503, 504)


class DocumentedRoute(Route):
    """A route and what OpenAPI says of it: the schema of its fields, of what it answers by media type, and of its errors."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Awaitable[Response]],
        answers: dict[str, Any],
        *,
        fields: type[BaseModel] | dict[str, Any] | None = None,
        kinds: tuple[str, ...] = ("application/json",),
        errors: tuple[int, ...] = ERRORS,
    ) -> None:
        super().__init__(path, endpoint, methods=["GET" if fields is None else "POST"])
        is_openai = path.startswith("/v1")
        error = {"application/json": {"schema": OPENAI_ERROR if is_openai else LIBRE_ERROR}}
        content = {kind: {"schema": schema} if schema else {} for kind, schema in answers.items()}
        responses: dict[str, Any] = {"200": {"description": "answered", "content": content}}
        for status in sorted({*errors, *([401] if is_openai else [])}):
            responses[str(status)] = {"description": "refused", "content": error}
        self.operation: dict[str, Any] = {
            "summary": endpoint.__name__.replace("_", " ").capitalize(),
            "description": inspect.getdoc(endpoint),
            "responses": responses,
        }
        if "{name}" in path:
            self.operation["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
            ]
        if fields is not None:
            schema = fields if isinstance(fields, dict) else fields.model_json_schema()
            self.operation["requestBody"] = {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}


def openapi(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The document of all routes that say something of themselves."""
    paths = {
        route.path: {"get" if "GET" in (route.methods or ()) else "post": route.operation}
        for route in routes
        if isinstance(route, DocumentedRoute)
    }
    return {"openapi": "3.1.0", "info": {"title": "glassformer", "version": version}, "paths": paths}
