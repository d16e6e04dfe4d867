"""Who may ask: host names (against DNS rebinding), pages of other origins, and the key, wherever a client puts it.

Starlette's TrustedHostMiddleware and CORSMiddleware answer in plain text, know no addresses, and let a page of another site
have its request computed; clients of both dialects read JSON, and such a request is refused here before it costs anything.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.serve.requests import APIError, from_pairs

OWNER = "owner"
"""The name of whoever holds the only key, or asks where none is needed."""
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?", re.IGNORECASE)
SHORTEST_KEY = 16
LARGEST_KEYS = 1 << 20  # bytes of a file of keys
KEY_NAME = "GLASSFORMER_API_KEY"


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is called by; None for a name."""
    with suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]"))
    return None


def keys_from(file: Path | None, host: str) -> dict[str, str]:
    """The API keys, with the names of their holders; without any a server is for its own machine alone. The first line of the
    file is the owner's; another one is a key if a tab and the name of whoever holds it stand behind it."""
    lines = [os.environ.get(KEY_NAME, "")]
    if file is not None:
        try:
            lines = structured.read_regular(file, LARGEST_KEYS).decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                "the key cannot be read from {file}: {value}", file, getattr(error, "strerror", "it is not text")
            ) from None
    keys: dict[str, str] = {}
    for number, line in enumerate(lines):
        key, _unused, name = (" ".join(part.split()) for part in line.partition("\t"))
        if key and (name or not number):
            keys[key] = name or OWNER
    if not keys and file is not None:
        raise UserError("{file} holds no key; its first line is the key", file)
    address = address_of(host)
    if not keys and host != "localhost" and not (address and address.is_loopback):
        raise UserError(
            "on {host} anyone who can reach this machine could ask, so an API key is needed: give --key-file, or set "
            "{key_name}",
            host,
            KEY_NAME,
        )
    if (shortest := min(map(len, keys), default=SHORTEST_KEY)) < SHORTEST_KEY:
        raise UserError("the API key has {n_key} characters and should have at least {shortest_key}; make one with "
"`python -c 'import secrets; print(secrets.token_urlsafe())'`", shortest, SHORTEST_KEY)  # fmt: skip
    return keys


class Auth:
    """The hosts this server is known by, the keys, and the origins whose pages may ask. `keys`: with the names of those who hold
    them, the owner's first."""

    def __init__(
        self, keys: Mapping[str, str] | None = None, hosts: Sequence[str] = (), origins: Sequence[str] = ()
    ) -> None:
        self.keys = {hashlib.sha256(key.encode()).digest(): name for key, name in (keys or {}).items()}
        self.hosts = {"localhost", *(host.lower() for host in hosts)}
        self.origins = set(origins)

    def check_host(self, headers: Mapping[bytes, bytes]) -> str:
        """A name that is not ours is another site's that points here (DNS rebinding). An address is always right."""
        given = headers.get(b"host", b"").decode("latin-1")
        match = HOST.fullmatch(given)
        host = (match[1] or match[2]).lower() if match and int(match[3] or 0) < 2**16 else ""
        if host in self.hosts or address_of(host):
            return given
        raise APIError(400, "this server is not known by the host name of the request; see --allow-host")

    def check_origin(self, headers: Mapping[bytes, bytes], host: str) -> str | None:
        """The origin of a page that may ask; a page of another site may not."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin in self.origins:
            return origin
        with suppress(ValueError):  # http://[
            if not origin or urlsplit(origin).netloc.lower() == host.lower():
                return None
        raise APIError(403, "pages of other sites may not ask this server; see --allow-origin")

    def holder_of(self, given: Any) -> str | None:
        """The holder of the key, or None; constant-time comparison."""
        digest = hashlib.sha256(str(given).encode("utf-8", "replace")).digest()
        holders = [name for key, name in self.keys.items() if hmac.compare_digest(digest, key)]  # every key is compared
        return holders[0] if holders else None

    def holder(self, headers: Mapping[bytes, bytes], query: bytes) -> str | None:
        """Whose key is in a header as OpenAI's clients send it, or in the query; it may still be among the body's fields.
        Where no key is needed everyone is the owner, on the machine itself."""
        if not self.keys:
            return OWNER
        bearer = headers.get(b"authorization", b"").decode("latin-1").removeprefix("Bearer ").strip()
        candidates: list[Any] = [bearer, headers.get(b"x-api-key", b"").decode("latin-1")]
        with suppress(APIError):
            candidates.append(from_pairs(query).get("api_key"))
        return next(filter(None, map(self.holder_of, candidates)), None)

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
