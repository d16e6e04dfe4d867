"""What `glassformer serve` does: reads its options, puts the server together, and lets it run until it is told to end."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from glassformer.config.fields import coerce, type_hints
from glassformer.config.recipe import refuse_unknown
from glassformer.errors import ConfigError, UserError
from glassformer.language import _
from glassformer.screen import say
from glassformer.serve.app import Served
from glassformer.serve.auth import Auth
from glassformer.serve.languages import codes_from
from glassformer.serve.lifecycle import Server
from glassformer.serve.limits import Limits
from glassformer.serve.models import Models, ServedRun

SHORTEST_KEY = 16
KEY_NAME = "GLASSFORMER_API_KEY"


def limits_from(settings: Sequence[str]) -> Limits:
    """Limits with changes such as queue=64."""
    hints, changes = type_hints(Limits), {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError("a limit is set as NAME=VALUE, such as queue=64, not {setting!r}", setting=setting)
        refuse_unknown({name: value}, [field.name for field in fields(Limits)], "limit")
        changes[name] = coerce(value, hints[name], f"limit {name}")
        if changes[name] is not None and changes[name] <= 0:
            raise ConfigError("limit {name} must be above 0, not {value}", name=name, value=value)
    return replace(Limits(), **changes)


def is_loopback(host: str) -> bool:
    """Can only this machine reach it?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def key_from(file: Path | None, host: str) -> str | None:
    """The API key; without one a server is for its own machine alone."""
    key = os.environ.get(KEY_NAME)
    if file is not None:
        try:
            key = next(iter(file.read_text(encoding="utf-8").splitlines()), "").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                "the key cannot be read from {file}: {value}",
                file=file,
                value=getattr(error, "strerror", "it is not text"),
            ) from None
    if not key:
        if file is not None:
            raise UserError("{file} holds no key; its first line is the key", file=file)
        if not is_loopback(host):
            raise UserError(
                "on {host} anyone who can reach this machine could ask, so an API key is needed: give --key-file, or set "
                "{key_name}",
                host=host,
                key_name=KEY_NAME,
            )
        return None
    if len(key) < SHORTEST_KEY:
        raise UserError("the API key has {n_key} characters and should have at least {shortest_key}; make one with "
"`python -c 'import secrets; print(secrets.token_urlsafe())'`", n_key=len(key), shortest_key=SHORTEST_KEY)  # fmt: skip
    return key


def served_runs(paths: Sequence[Path], languages: Sequence[str], *, to_look_at: bool = False) -> list[ServedRun]:
    """The runs with their languages; `to_look_at`: those that write nothing, too."""
    named = {}
    for option in languages:
        name, equals, codes = option.partition("=")
        if not equals and len(paths) > 1:
            raise ConfigError("with several runs --languages says whose: NAME={option}", option=option)
        named[name if equals else paths[0].resolve().name] = codes_from(codes if equals else option)
    refuse_unknown(named, [path.resolve().name for path in paths], "run")
    return [ServedRun(path, named.get(path.resolve().name), to_look_at=to_look_at) for path in paths]


def run_server(
    paths: Sequence[Path],
    address: tuple[str, int],
    *,
    languages: Sequence[str] = (),
    key_file: Path | None = None,
    names: tuple[Sequence[str], Sequence[str]] = ((), ()),
    batch_invariant: bool = False,
    limits: Sequence[str] = (),
    device: str = "auto",
    opened: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal comes. `opened`: called with the address of the live page once it can be asked for; the machine is the
    runs' owner's, who may see their data."""
    host, port = address
    if not 0 <= port <= 65535:
        raise ConfigError("a port is a number from 0 to 65535, not {port}", port=port)
    bounds, key, hosts = limits_from(limits), key_from(key_file, host), list(names[0])

    async def serve() -> Models:
        runs = served_runs(paths, languages, to_look_at=opened is not None)
        models = Models(runs, bounds, device=device, batch_invariant=batch_invariant, report=say)
        for run in models.runs.values():
            if run.translates:
                say(
                    _("{name}: {sources} to {target}", name=run.name, sources=", ".join(run.sources), target=run.target)
                )
        served = Served(models, bounds, Auth(key, [*hosts, host], names[1]), say, examples=opened is not None)
        server = Server(served, host, port, say, opened)
        await server.serve()
        models.close()
        return models

    try:
        models = asyncio.run(serve())
    except SystemExit:
        raise UserError(
            "nothing can listen on {host} port {port}; is it taken by another program?", host=host, port=port
        ) from None
    if any(worker.stuck_for() for worker in models.workers()):
        sys.stderr.flush()
        os._exit(0)  # a thread that hangs would keep the process from ending
