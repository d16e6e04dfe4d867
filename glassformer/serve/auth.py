"""Who may ask: host names (against DNS rebinding), pages of other origins, and the key, wherever a client puts it.

Starlette's TrustedHostMiddleware and CORSMiddleware answer in plain text, know no addresses, and let a page of another site have
its request computed; clients of both dialects read JSON, and such a request is refused here before it costs anything.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from glassformer.serve.api_errors import APIError
from glassformer.serve.fields import from_pairs

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?", re.IGNORECASE)


class Auth:
    """The hosts this server is known by, the key, and the origins whose pages may ask."""

    def __init__(self, key: str | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> None:
        self.key = None if key is None else hashlib.sha256(key.encode()).digest()
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self.origins = set(origins)

    def check_host(self, headers: Mapping[bytes, bytes]) -> str:
        """A name that is not ours is another site's that points here (DNS rebinding). An address is always right."""
        given = headers.get(b"host", b"").decode("latin-1")
        match = HOST.fullmatch(given)
        host = (match[1] or match[2]).lower() if match and int(match[3] or 0) < 2**16 else ""
        if host in self.hosts:
            return given
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise APIError(400, "this server is not known by the host name of the request; see --allow-host") from None
        return given

    def check_origin(self, headers: Mapping[bytes, bytes], host: str) -> str | None:
        """The origin of a page that may ask; a page of another site may not."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            return None
        if origin in self.origins:
            return origin
        try:
            is_same = urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # http://[
            is_same = False
        if not is_same:
            raise APIError(403, "pages of other sites may not ask this server; see --allow-origin")
        return None

    def is_key(self, given: Any) -> bool:
        """Is it the key? In a time that tells nothing of it."""
        return isinstance(given, str) and hmac.compare_digest(hashlib.sha256(given.encode()).digest(), self.key or b"")

    def has_key(self, headers: Mapping[bytes, bytes], query: bytes) -> bool:
        """Is the key in a header as OpenAI's clients send it, or in the query? It may still be among the body's fields."""
        if self.key is None:
            return True
        bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        candidates: list[Any] = [bearer, headers.get(b"x-api-key", b"").decode("latin-1")]
        with suppress(APIError):
            candidates.append(from_pairs(query.decode("latin-1")).get("api_key"))
        return any(self.is_key(candidate) for candidate in candidates)

    def check_fields(self, fields: Mapping[str, Any], path: str) -> None:
        """Refuse whose fields do not hold the key, as LibreTranslate's clients send it, in the dialect of the path."""
        if self.is_key(fields.get("api_key")):
            return
        if path.startswith("/v1"):
            raise APIError(401, "this server needs its API key in the Authorization header", code="invalid_api_key")
        raise APIError(403, "Invalid API key")
