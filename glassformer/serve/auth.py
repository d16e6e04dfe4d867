"""Who may come in: host names (against DNS rebinding), pages of other origins, and the key, wherever a client puts it."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from glassformer.serve.fields import from_pairs
from glassformer.serve.api_errors import Refused

HAS_KEY = re.compile(rb"api_key")
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?", re.IGNORECASE)


class Door:
    """Who may come in: names of hosts, a key, and pages of other origins that may ask."""

    def __init__(self, key: str | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()) -> None:
        self.key = None if key is None else hashlib.sha256(key.encode()).digest()
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self.origins = set(origins)

    def check_host(self, headers: dict[bytes, bytes]) -> str:
        """A name that is not ours is another site's that points here (DNS rebinding). An address is always right."""
        given = headers.get(b"host", b"").decode("latin-1")
        found = HOST.fullmatch(given)
        host = (found[1] or found[2]).lower() if found and int(found[3] or 0) < 2**16 else ""
        if host in self.hosts:
            return given
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise Refused(400, "this server is not known by the host name of the request; see --allow-host") from None
        return given

    def check_origin(self, headers: dict[bytes, bytes], host: str) -> str | None:
        """The origin of a page that may ask; a page of another site may not."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin:
            return None
        if origin in self.origins:
            return origin
        try:
            own = urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # http://[
            own = False
        if not own:
            raise Refused(403, "pages of other sites may not ask this server; see --allow-origin")
        return None

    def knows(self, given: str) -> bool:
        """Is it the key? In a time that tells nothing of it."""
        return self.key is None or hmac.compare_digest(hashlib.sha256(given.encode()).digest(), self.key)

    def has_key(self, headers: dict[bytes, bytes], query: bytes, body: bytes = b"") -> bool:
        """Is the key in the header as OpenAI's clients send it, or among the fields as LibreTranslate's do?"""
        if self.key is None:
            return True
        bearer = headers.get(b"authorization", b"").decode("latin-1")
        candidates = [bearer.removeprefix("Bearer ").strip(), headers.get(b"x-api-key", b"").decode("latin-1")]
        candidates += keys_among(query, body, headers.get(b"content-type", b""))
        return any(self.knows(one) for one in candidates if one)

    def check_key(self, headers: dict[bytes, bytes], query: bytes, body: bytes, path: str) -> None:
        """Refuse whoever does not have it, in the dialect of the path."""
        if self.has_key(headers, query, body):
            return
        if path.startswith("/v1"):
            raise Refused(401, "this server needs its API key in the Authorization header", code="invalid_api_key")
        raise Refused(403, "Invalid API key")


def keys_among(query: bytes, body: bytes, kind: bytes) -> list[str]:
    """What is called api_key in the query or the body."""
    found: list[Any] = []
    try:
        found.append(from_pairs(query.decode("latin-1")).get("api_key"))
        if HAS_KEY.search(body):
            if b"json" in kind or body.lstrip()[:1] == b"{":
                value = msgspec.json.decode(body)
                found.append(value.get("api_key") if isinstance(value, dict) else None)
            elif b"multipart" in kind:
                part = re.search(rb'name="api_key"\r\n\r\n([^\r\n]*)\r\n', body)
                found.append(part[1].decode("latin-1") if part else None)
            else:
                found.append(from_pairs(body.decode("latin-1")).get("api_key"))
    except (Refused, ValueError, RecursionError):
        pass
    return [one for one in found if isinstance(one, str)]
