"""Who may ask: keys, hosts, origins, and what a browser and a log get to see."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from glassformer.errors import ConfigError, UserError
from glassformer.serve.auth import Auth, keys_from
from glassformer.serve.middleware import OPEN, is_open
from glassformer.serve.requests import Limits
from glassformer.serve.server import limits_from, served_runs
from tests.commands import call
from tests.counts import count
from tests.serve.harness import Running, running, until
from tests.serve.test_trust import held_up

pytestmark = pytest.mark.slow

KEY = "a-key-of-some-length"
ASKED = {"q": "the cat sat on the mat.", "source": "en", "target": "de"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture(scope="module")
def locked(paths: list[Path]) -> Iterator[Running]:
    with running(paths, auth=Auth({KEY: "owner"}, ["translate.example.org"], ["https://example.org"])) as server:
        yield server


def test_every_route_is_closed_but_those_that_are_listed(locked: Running) -> None:
    """By enumerating the routes: a new one is closed until somebody lists it."""
    routes = [(route.path, method) for route in locked.served.routes() for method in route.methods or ()]
    assert len(routes) > 15
    for path, method in routes:
        status = locked.ask(method, path.replace("{name}", "writer"))[0]
        if path in OPEN:
            assert status not in (401, 403), path
        else:
            assert status == (401 if path.startswith("/v1") else 403), path
    assert locked.ask("GET", "/nothing")[0] == 403
    assert {path for path, _ in routes} >= OPEN


@pytest.mark.parametrize("key", [KEY, KEY[:-1], KEY + "x", "", "é" * 20])
def test_the_key_in_every_place(locked: Running, key: str) -> None:
    """As OpenAI's clients send it and as LibreTranslate's do."""
    ok = key == KEY
    places: list[tuple[str, Any, dict[str, str]]] = [
        ("/translate", {**ASKED, "api_key": key}, {}),
        ("/translate", urlencode({**ASKED, "api_key": key}).encode(), FORM),
        ("/translate?" + urlencode({"api_key": key}), ASKED, {}),
    ]
    if key.isascii():
        places += [("/translate", ASKED, {"Authorization": f"Bearer {key}"}), ("/translate", ASKED, {"X-API-Key": key})]
    for path, body, headers in places:
        assert locked.ask("POST", path, body, headers)[0] == (200 if ok else 403), path


def test_clients_with_a_key(locked: Running) -> None:
    from libretranslatepy import LibreTranslateAPI
    from openai import AuthenticationError, OpenAI

    client = LibreTranslateAPI(locked.address, KEY)
    assert client.languages() and client.translate("the cat", "en", "de")
    assert OpenAI(base_url=locked.address + "/v1", api_key=KEY).models.list().data
    with pytest.raises(AuthenticationError):
        OpenAI(base_url=locked.address + "/v1", api_key="wrong", max_retries=0).models.list()
    assert locked.ask("GET", "/frontend/settings")[2]["keyRequired"] is True


@pytest.mark.parametrize(
    ("host", "ok"),
    [
        ("localhost:5000", True),
        ("127.0.0.1", True),
        ("[::1]:80", True),
        ("translate.example.org", True),
        ("Translate.Example.org:443", True),
        ("evil.example.com", False),
        ("localhost.evil.com", False),
        ("localhost:x", False),
        ("localhost:99999", False),
        ("localhost:", True),
        ("[::1", False),
        ("[", False),
        ("[::1%25eth0]", False),
        ("127.0.0.1/x?y", False),
        ("evil.com@localhost", False),
        ("localhost,evil.com", False),
        ("", False),
    ],
)
def test_only_our_own_names(locked: Running, host: str, ok: bool) -> None:
    status, _, body = locked.ask("GET", "/readyz", headers={"Host": host})
    assert status == (200 if ok else 400), body


def test_pages_of_other_sites(locked: Running, paths: list[Path]) -> None:
    with_key = {"Authorization": f"Bearer {KEY}"}
    status, headers, _ = locked.ask("POST", "/translate", ASKED, {**with_key, "Origin": "https://example.org"})
    assert status == 200 and headers["access-control-allow-origin"] == "https://example.org"
    pre = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    status, headers, _ = locked.ask("OPTIONS", "/translate", headers=pre)
    assert status == 204 and "authorization" in headers["access-control-allow-headers"]
    for origin in (
        "https://other.org",
        "null",
        "http://127.0.0.1.evil.com",
        "http://[",
        "//[::1",
        "http://]",
        "http://[v1.x]:",
    ):
        status, headers, _ = locked.ask("POST", "/translate", ASKED, {**with_key, "Origin": origin})
        assert status == 403 and "access-control-allow-origin" not in headers
    own = {**with_key, "Origin": locked.address}
    status, headers, _ = locked.ask("POST", "/translate", ASKED, own)
    assert status == 200 and "access-control-allow-origin" not in headers


def test_what_keeps_browsers_safe(locked: Running) -> None:
    for path in ("/", "/docs", "/readyz", "/translate", "/nothing", "/page/home.js"):
        headers = locked.ask("GET", path)[1]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "same-origin"
    body = {"text": "the cat", "model": "translator", "api_key": KEY}
    status, headers, page = locked.ask("POST", "/look", body)
    assert status == 200 and b"look" in page.lower()
    assert "script-src 'sha256-" in headers["content-security-policy"]


def test_no_text_key_or_address_in_the_log_or_the_books(locked: Running) -> None:
    secret = "Zanzibar 4711"
    locked.ask("POST", "/translate", {**ASKED, "q": secret, "api_key": KEY})
    locked.ask("POST", "/translate?" + urlencode({**ASKED, "q": secret, "api_key": KEY + "x"}))
    locked.ask("GET", f"/page/{secret.split()[0]}")
    locked.ask("GET", f"/{secret.split()[0]}/{KEY}")
    locked.ask("POST", "/v1/completions", {"model": secret, "prompt": secret}, {"Authorization": f"Bearer {KEY}"})
    books = locked.ask("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})[2].decode()
    for told in (json.dumps(locked.log), books):
        assert "Zanzibar" not in told and KEY not in told
        assert "127.0.0.1" not in told.replace(locked.address, "")


def test_what_cannot_be_read_is_no_error_of_ours(locked: Running) -> None:
    """Targets that are no paths, a character of thousands of digits, half a character in a name."""
    key = {"Authorization": f"Bearer {KEY}"}
    for target in ("@[", "*", "http://[/translate", "//[", "/translate?%ff", "/v1/models/%00", "/download_file/%2e%2e"):
        with socket.create_connection(("127.0.0.1", locked.port), timeout=30) as raw:
            raw.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
            assert raw.recv(100).startswith(b"HTTP/1.1 4"), target
    numbers = ("&#" + "1" * 4301, "&#" + "0" * 5000 + "65", "&#x" + "1" * 5000, "&#1114112", "&#0", "&#xd800", "&#65")
    for entity in (*(f"{number};" for number in numbers), "&" + "a" * 5000 + ";"):
        assert locked.ask("POST", "/translate", {**ASKED, "q": f"a {entity} b", "format": "html"}, key)[0] == 200
    form = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'
        for k, v in {**ASKED, "target": "\\ud800", "q": "a"}.items()
    )
    kind = {"Content-Type": "multipart/form-data; boundary=b; charset=unicode_escape"}
    assert locked.ask("POST", "/translate", (form + "--b--\r\n").encode(), {**key, **kind})[0] == 400
    until(lambda: not locked.served.middleware.in_flight)
    assert not any("request failed" in line for line in locked.log)


HARMFUL = [
    "/open/arrays/x/" + "9" * 5000,
    "/open/arrays/x/-1",
    "/open/arrays/x/%C2%B2",
    "/tour/" + "a" * 300,
    "/tour/%00",
    "/tour/..",
]


@pytest.mark.parametrize("path", [*HARMFUL, "/page/" + "a" * 5000, "/open/" + "a" * 5000 + "/examples"])
def test_no_path_is_an_error_of_ours(locked: Running, path: str) -> None:
    """Broken variants: a path whose part is made a number, or looked for on the disk, before the key is asked for."""
    for headers in ({}, {"Authorization": f"Bearer {KEY}"}):
        status = locked.ask("GET", path, headers=headers)[0]
        assert status == 404 or (status == 403 and not headers), (path[:40], headers)
    assert not any("request failed" in line for line in locked.log)


def test_drawn_paths_are_answered(locked: Running) -> None:
    """Parts of the server's own paths with what no path has in them. Broken variant: a route that fails to be found."""
    draw = random.Random(0)
    words = [word for route in locked.served.routes() for word in route.path.split("/")]
    words += ["9" * 5000, "%00", "%ff", "..", "%2e%2e%2f", "a" * 300, "-1", "%F0%9F%98%80", ";", "{name}"]
    for _ in range(count(fast=60, soak=5000)):
        path = "/" + "/".join(draw.choices(words, k=draw.randrange(1, 5)))
        headers = {"Authorization": f"Bearer {KEY}"} if draw.random() < 0.5 else {}
        status = locked.ask(draw.choice(["GET", "POST", "HEAD"]), path, headers=headers)[0]
        assert status < 500, path[:200]
        assert headers or status in (401, 403) or is_open(path), path[:200]


def test_host_and_key_come_first_when_all_is_full(paths: list[Path]) -> None:
    """Who may not ask hears that, and nothing of how busy it is, wherever the key stands and however the bytes come."""
    with (
        running(paths[:1], Limits(queue=2), auth=Auth({KEY: "owner"})) as server,
        held_up() as go,
        ThreadPoolExecutor(2) as pool,
    ):
        good = {"Authorization": f"Bearer {KEY}"}
        assert server.ask("POST", "/translate", {**ASKED, "q": ""}, good)[0] == 200
        waiting = [pool.submit(server.ask, "POST", "/translate", ASKED, good) for _ in range(2)]
        until(lambda: server.worker("translator").held == 2)
        for wrong, status in (({}, 403), ({"Authorization": "Bearer x"}, 403), ({"Host": "evil.com"}, 400)):
            for extra in ({}, {"Connection": "close"}):  # the short way and the long one
                given = (good if "Host" in wrong else {}) | wrong | extra
                found = server.ask("POST", "/translate", ASKED, given)
                assert found[0] == status and "retry-after" not in found[1] and "waiting" not in found[2]["error"]
        assert server.ask("POST", "/v1/completions", {"model": "translator", "prompt": "a"})[0] == 401
        for path, body, given in (
            ("/translate", ASKED, good),
            ("/translate", {**ASKED, "api_key": KEY}, {}),
            ("/translate?" + urlencode({"api_key": KEY}), ASKED, {}),
        ):
            status, headers, _ = server.ask("POST", path, body, given)
            assert status == 429 and "retry-after" in headers
        go.set()
        assert [one.result()[0] for one in waiting] == [200, 200]


# ---- the command's options


def test_beyond_loopback_a_key_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLASSFORMER_API_KEY", raising=False)
    assert not keys_from(None, "127.0.0.1") and not keys_from(None, "::1") and not keys_from(None, "localhost")
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org"):
        with pytest.raises(UserError, match="--key-file"):
            keys_from(None, host)
    file = tmp_path / "key"
    file.write_text(KEY + "\nmore\n")
    assert keys_from(file, "0.0.0.0") == {KEY: "owner"}
    for wrong in ("", "short\n"):
        file.write_text(wrong)
        with pytest.raises(UserError):
            keys_from(file, "127.0.0.1")
    for path in (tmp_path / "none", Path("/dev/zero"), tmp_path):  # broken variant: a device is read until memory ends
        with pytest.raises(UserError, match="cannot be read"):
            keys_from(path, "127.0.0.1")
    (tmp_path / "large").write_text((KEY + "\n") * 100_000)
    with pytest.raises(UserError, match="cannot be read"):
        keys_from(tmp_path / "large", "127.0.0.1")
    monkeypatch.setenv("GLASSFORMER_API_KEY", KEY)
    assert keys_from(None, "0.0.0.0") == {KEY: "owner"}


def test_a_link_to_itself_is_no_run(tmp_path: Path) -> None:
    """Broken variant: its name is asked for first, which never ends."""
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UserError, match="loop"):
        served_runs([tmp_path / "loop"], [])


@pytest.mark.parametrize("device", ["meta", "nonsense", "cpu,meta"])
def test_a_device_that_cannot_answer_ends_the_server(paths: list[Path], device: str) -> None:
    """With exit code 2, which a supervisor hears sooner than that it is never ready."""
    done = call("serve", str(paths[0]), "--port", "0", "--device", device)
    assert done.returncode == 2 and "device" in done.stderr and "Traceback" not in done.stderr


def test_limits_and_languages(paths: list[Path]) -> None:
    assert limits_from(["queue=7", "seconds=1.5", "memory=none"]).queue == 7
    for wrong in ("queue", "queue=x", "queue=0", "quue=3", "seconds=-1"):
        with pytest.raises(ConfigError):
            limits_from([wrong])


def test_languages_of_runs(paths: list[Path]) -> None:
    (run,) = served_runs(paths[:1], ["de,fr:en"])
    assert (run.sources, run.target) == (("de", "fr"), "en")
    both = served_runs(paths, ["translator=zh:en"])
    assert (both[0].sources, both[0].target, both[1].translates) == (("zh",), "en", False)
    for wrong in (["de:en"], ["nobody=de:en"], ["translator=deen"], ["translator=de:e n"]):
        with pytest.raises(ConfigError):
            served_runs(paths, wrong)
