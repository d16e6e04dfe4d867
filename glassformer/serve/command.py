"""What `glassformer serve` does: reads its options, puts the server together, and lets it run until it is told to end."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import os
import secrets
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from glassformer.api.loading import pick_device
from glassformer.config.fields import coerce, type_hints
from glassformer.config.recipe import refuse_unknown
from glassformer.errors import ConfigError, UserError
from glassformer.files import structured
from glassformer.language import _
from glassformer.runs.folder import RunFolder
from glassformer.screen import say
from glassformer.serve.app import Served
from glassformer.serve.auth import OWNER, Auth
from glassformer.serve.languages import codes_from
from glassformer.serve.lifecycle import Server
from glassformer.serve.limits import Limits
from glassformer.serve.models import Models, ServedRun

SHORTEST_KEY = 16
SWITCH_SECONDS = 1e-4
END_SECONDS = 3.0  # for threads to end, once all is answered and closed
LARGEST_KEYS = 1 << 20  # bytes of a file of keys
KEY_NAME = "GLASSFORMER_API_KEY"


def limits_from(settings: Sequence[str]) -> Limits:
    """Limits with changes such as queue=64."""
    hints, changes = type_hints(Limits), {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError("a limit is set as NAME=VALUE, such as queue=64, not {setting!r}", setting)
        refuse_unknown({name: value}, [field.name for field in fields(Limits)], "limit")
        changes[name] = coerce(value, hints[name], f"limit {name}")
        if changes[name] is not None and changes[name] <= 0:
            raise ConfigError("limit {name} must be above 0, not {value}", name, value)
    return replace(Limits(), **changes)


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
    if not keys:
        if file is not None:
            raise UserError("{file} holds no key; its first line is the key", file)
        if not is_loopback(host):
            raise UserError(
                "on {host} anyone who can reach this machine could ask, so an API key is needed: give --key-file, or set "
                "{key_name}",
                host,
                KEY_NAME,
            )
    if (shortest := min(map(len, keys), default=SHORTEST_KEY)) < SHORTEST_KEY:
        raise UserError("the API key has {n_key} characters and should have at least {shortest_key}; make one with "
"`python -c 'import secrets; print(secrets.token_urlsafe())'`", shortest, SHORTEST_KEY)  # fmt: skip
    if len(set(keys.values())) < len(keys):
        raise UserError("two keys of {file} have the same name; name their holders apart", file)
    return keys


def served_runs(paths: Sequence[Path], languages: Sequence[str], *, to_look_at: bool = False) -> list[ServedRun]:
    """The runs with their languages; `to_look_at`: those that write nothing, too."""
    for path in paths:
        RunFolder.open(
            path
        )  # what is no run, such as a link that leads to itself, is said before its name is asked for
    named = {}
    for option in languages:
        name, equals, codes = option.partition("=")
        if not equals and len(paths) > 1:
            raise ConfigError("with several runs --languages says whose: NAME={option}", option)
        named[name if equals else paths[0].resolve().name] = codes_from(codes if equals else option)
    refuse_unknown(named, [path.resolve().name for path in paths], "run")
    return [ServedRun(path, named.get(path.resolve().name), to_look_at=to_look_at) for path in paths]


@dataclass(frozen=True)
class ServerSetup:
    """What a server is told. `how`: the device, `batch_invariant` and `learn`, as `Models`
    takes them."""

    paths: Sequence[Path]
    languages: Sequence[str]
    host: str
    bounds: Limits
    keys: dict[str, str]
    names: tuple[Sequence[str], Sequence[str]]  # hosts, origins
    watched: Sequence[Path]
    how: dict[str, Any]

    def runs(self, *, to_look_at: bool = False) -> list[ServedRun]:
        """The runs with their languages."""
        return served_runs(self.paths, self.languages, to_look_at=to_look_at)

    def serve(
        self,
        port: int,
        *,
        report: Callable[[str], None] = lambda _: None,
        opened: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until a signal comes."""

        for device in str(self.how.get("device", "auto")).split(","):
            pick_device(device.strip())  # a machine that will never answer is told at once, and not by a probe

        async def serve() -> Models:
            models = Models(self.runs(to_look_at=opened is not None), self.bounds, report=say, **self.how)
            auth = Auth(self.keys, [*self.names[0], self.host], self.names[1])
            examples = opened is not None
            served = Served(models, self.bounds, auth, say, examples=examples, watched=self.watched)
            server = Server(served, self.host, port, report, opened)
            server.on_ready = gc.freeze  # what was loaded stays: no collection looks at it again while requests wait
            try:
                await server.serve()
            finally:
                models.close()
                served.close()
                ending.start()
            return models

        # A thread that lets go of Python's lock (to wait for a GPU, to tokenize) has it back only when the other has held it for
        # so long; with the usual 5 ms HTTP and decoding spend most of their time waiting for one another.
        sys.setswitchinterval(SWITCH_SECONDS)
        ending = threading.Timer(END_SECONDS, os._exit, [0])  # else a thread that hangs would keep the process alive
        ending.daemon = True
        try:
            models = asyncio.run(serve())
        except SystemExit:
            raise UserError(
                "nothing can listen on {host} port {port}; is it taken by another program?", self.host, port
            ) from None
        finally:
            ending.cancel()
        if any(worker.stuck_for() for worker in models.workers()):
            sys.stderr.flush()
            os._exit(0)  # a thread that hangs would keep the process from ending


def run_server(
    paths: Sequence[Path],
    address: tuple[str, int],
    *,
    languages: Sequence[str] = (),
    key_file: Path | None = None,
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
    limits: Sequence[str] = (),
    opened: Callable[[str], None] | None = None,
    watched: Sequence[Path] = (),
    **how: Any,
) -> None:
    """Serve until a signal comes. `opened`: called with the address of the live page once it can be asked for; who holds the
    token in it is the runs' owner, who may see their data. `watched`: runs, or folders of runs, that are followed while they
    are trained. `how`: the device, `batch_invariant` and `learn`, as `Models` takes them."""
    host, port = address
    if not 0 <= port <= 65535:
        raise ConfigError("a port is a number from 0 to 65535, not {port}", port)
    token = secrets.token_urlsafe()
    keys = keys_from(key_file, host) if opened is None else {token: OWNER}
    setup = ServerSetup(paths, languages, host, limits_from(limits), keys, names, watched, how)
    for run in setup.runs(to_look_at=opened is not None):
        if run.translates:
            say(_("{name}: {sources} to {target}", run.name, ", ".join(run.sources), run.target))
    setup.serve(port, report=say, opened=opened and (lambda address: opened(f"{address}?token={token}")))
