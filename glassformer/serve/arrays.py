"""The arrays of a report as the live page gets them: as bytes. Small ones come with their report; a large one, such as the maps
of a layer for a long text, is held for a while, and comes by itself when a view draws it."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from glassformer.inspection.page import page_json
from glassformer.serve.api_errors import APIError

BYTES = "application/octet-stream"
SMALL = 1 << 16  # bytes of an array that comes with its report
HELD = 256 << 20  # bytes of large arrays, the oldest reports' of which are forgotten first


class Arrays:
    """The large arrays of the last reports, by names that cannot be guessed."""

    def __init__(self) -> None:
        self.held: dict[str, list[bytes]] = {}

    def packed(self, data: dict[str, Any]) -> bytes:
        """A report: the length of its JSON in four bytes, the JSON, and the small arrays. In the JSON an array is [name of the
        report, first byte, bytes], or, of one that is held, [name of the report, number]."""
        name = secrets.token_urlsafe(12)
        small, large = bytearray(), []

        def place(raw: bytes) -> list[str | int]:
            if len(raw) > SMALL:
                large.append(raw)
                return [name, len(large) - 1]
            small.extend(raw)
            return [name, len(small) - len(raw), len(raw)]

        text = page_json(data | {"arrays": name}, place).encode("utf-8", "replace")
        if large:
            self.held[name] = large
        while len(self.held) > 1 and sum(len(raw) for one in self.held.values() for raw in one) > HELD:
            del self.held[next(iter(self.held))]
        return len(text).to_bytes(4, "little") + text + small

    async def one(self, request: Request) -> Response:
        """A large array of a report that was given out."""
        arrays = self.held.get(request.path_params["report"], [])
        number = request.path_params["number"]
        if number not in map(str, range(len(arrays))):
            raise APIError(404, "the arrays of this report are not held any more; ask for the report again")
        return Response(arrays[int(number)], media_type=BYTES)

    def routes(self) -> list[Route]:
        """The one route."""
        return [Route("/open/arrays/{report}/{number}", self.one)]
