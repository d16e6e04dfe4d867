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

OWNER = "owner"
"""The name of whoever holds the only key, or asks where none is needed."""
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?", re.IGNORECASE)


class Auth:
    """The hosts this server is known by, the keys, and the origins whose pages may ask. `key`: one, or several with the names of
    those who hold them, the owner's first."""

    def __init__(
        self, key: str | Mapping[str, str] | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        named = {key: OWNER} if isinstance(key, str) else key or {}
        self.keys = {hashlib.sha256(one.encode()).digest(): name for one, name in named.items()}
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

    def holder_of(self, given: Any) -> str | None:
        """Whose key it is, if it is one. In a time that tells nothing of it."""
        if not isinstance(given, str):
            return None
        digest = hashlib.sha256(given.encode()).digest()
        return next(iter([name for key, name in self.keys.items() if hmac.compare_digest(digest, key)]), None)

    def holder(self, headers: Mapping[bytes, bytes], query: bytes) -> str | None:
        """Whose key is in a header as OpenAI's clients send it, or in the query; it may still be among the body's fields. Where
        no key is needed everyone is the owner, on the machine itself."""
        if not self.keys:
            return OWNER
        bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        candidates: list[Any] = [bearer, headers.get(b"x-api-key", b"").decode("latin-1")]
        with suppress(APIError):
            candidates.append(from_pairs(query.decode("latin-1")).get("api_key"))
        return next((name for one in candidates if (name := self.holder_of(one)) is not None), None)

    def is_owner(self, name: str) -> bool:
        """Is this the holder of the first key, or of the only one?"""
        return name == next(iter(self.keys.values()), OWNER)

    def check_fields(self, fields: Mapping[str, Any], path: str) -> str:
        """Whose key the fields hold, as LibreTranslate's clients send it; who has none is refused in the dialect of the path."""
        if (name := self.holder_of(fields.get("api_key"))) is not None:
            return name
        if path.startswith("/v1"):
            raise APIError(401, "this server needs its API key in the Authorization header", code="invalid_api_key")
        raise APIError(403, "Invalid API key")
