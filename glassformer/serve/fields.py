"""What a request says, whichever way it says it: JSON, a form, or the query. And the schema of it, for `/openapi.json`."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from glassformer.serve.api_errors import Refused, bad

Fields = TypeVar("Fields", bound=BaseModel)
MOST_FIELDS = 1000


def from_pairs(text: str) -> dict[str, Any]:
    """A query or a form: a name that comes several times is a list."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise bad("the query or form cannot be read: it is not UTF-8, or has too many fields") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
        else:
            found[name] = value
    return found


def from_json(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    try:
        value = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        raise bad("the body is not JSON that can be read") from None
    if not isinstance(value, dict):
        raise bad("the body must be a JSON object, with a name for each value")
    return value


async def from_multipart(body: bytes, headers: Headers) -> dict[str, Any]:
    """A form with files."""

    async def stream() -> Any:
        yield body

    try:
        form = await MultiPartParser(headers, stream(), max_files=4, max_fields=MOST_FIELDS).parse()
    except (MultiPartException, KeyError, ValueError, UnicodeDecodeError):
        raise bad("the form cannot be read: it is not multipart as its header says") from None
    return dict(form.multi_items())


async def said(request: Request) -> dict[str, Any]:
    """Everything a request says, by name; the body's word counts before the query's."""
    query = from_pairs(request.scope["query_string"].decode("latin-1"))
    body: bytes = request.scope["state"]["body"]
    if not body:
        return query
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return query | await from_multipart(body, request.headers)
    if kind == "application/x-www-form-urlencoded":
        try:
            return query | from_pairs(body.decode("utf-8"))
        except UnicodeDecodeError:
            raise bad("the form is not UTF-8") from None
    if kind in ("application/json", "") or kind.endswith("+json") or body.lstrip()[:1] == b"{":
        return query | from_json(body)
    raise Refused(400, "the body must be JSON or a form, and its Content-Type must say which")


def missing(name: str) -> Refused:
    """What LibreTranslate says where a field is not there."""
    return bad(f"Invalid request: missing {name} parameter", name)


async def read(request: Request, kind: type[Fields]) -> Fields:
    """What a request says, held against its schema; the first thing wrong is told by its name."""
    values = await said(request)
    try:
        return kind.model_validate({k: v for k, v in values.items() if not isinstance(v, UploadFile)})
    except ValidationError as error:
        wrong = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = str(wrong["loc"][0]) if wrong["loc"] else None
        if wrong["type"] == "missing":
            raise missing(name or "body") from None
        raise bad(f"{name}: {wrong['msg'][:1].lower()}{wrong['msg'][1:200]}", name) from None


def body_schema(kind: type[BaseModel], *, form: bool = False, required: bool = True) -> dict[str, Any]:
    """The body of a request for OpenAPI."""
    schema = kind.model_json_schema()
    ways = ["application/json", *(["application/x-www-form-urlencoded"] if form else [])]
    return {"requestBody": {"required": required, "content": {way: {"schema": schema} for way in ways}}}


OPENAI_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "object", "required": ["message", "type", "param", "code"]}},
}
LIBRE_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def responses(
    error: dict[str, Any], statuses: tuple[int, ...], good: dict[str, Any] | None = None
) -> dict[int | str, Any]:
    """What may be answered, for OpenAPI."""
    out: dict[int | str, Any] = {
        status: {"description": "refused", "content": {"application/json": {"schema": error}}} for status in statuses
    }
    if good is not None:
        out[200] = {"description": "answered", "content": {"application/json": {"schema": good}}}
    return out
