"""An answer that is an error: one sentence, with what either dialect wants to know of it."""

from __future__ import annotations

import re
from typing import Any

from starlette.exceptions import HTTPException

from glassformer.errors import UserError

PATH = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:[\\/]|/)[^\s,;'\"]*[\\/][^\s,;'\"]*")
"""Where files lie is nobody's business outside."""


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
        kind = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> APIError:
    """The error for a request that asks for what cannot be."""
    return APIError(400, message, param=param, code=code)


def as_api_error(error: BaseException) -> APIError:
    """What an error is called outside. A mistake of the client is told as it is; anything else is ours, and says nothing of
    what was asked."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, UserError):
        return bad_request(PATH.sub("a file of this server", str(error)))
    if isinstance(error, HTTPException):  # of Starlette's router
        messages = {
            404: "there is nothing under this path; see /docs",
            405: "this path is asked in another way; see /docs",
        }
        return APIError(error.status_code, messages.get(error.status_code, "this cannot be answered"))
    if isinstance(error, MemoryError):
        return APIError(500, "there was not enough memory to answer this; ask for less at a time")
    return APIError(500, "something went wrong inside while answering this; it is in the server's log")
