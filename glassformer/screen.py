"""What a person sees: tables on stdout, and on stderr one display for everything that takes long (training, files,
downloads, studies).

On a terminal the display is a bar with a line of facts under it; anywhere else a plain line now and then, so a log stays
readable. A screen is never a reason to stop: where stderr is full, closed or broken, the work goes on unseen. Text that
comes from data, names or models is shown as it is and never read as markup. What the package itself says appears in the
person's language (language.py).
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar

from glassformer.language import localized

T = TypeVar("T")
QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
"""True: nothing on stderr but errors."""


def be_quiet(quiet: bool) -> None:
    """From here on, say only what went wrong (or everything again)."""
    QUIET.set(quiet)


@contextmanager
def quietly(quiet: bool) -> Iterator[None]:
    """Inside, say only what went wrong, if asked; afterwards as before."""
    before = QUIET.set(quiet or QUIET.get())
    try:
        yield
    finally:
        QUIET.reset(before)


def rank_of_several() -> int | None:
    """The rank of this process, where torchrun, or whatever else sets its variables, started it as one of several."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1 and "MASTER_ADDR" in os.environ
    return int(os.environ.get("RANK", "0")) if several else None


def warn(text: str) -> None:
    """A line on stderr that even a quiet command does not keep to itself."""
    with suppress(OSError, ValueError, AttributeError):  # nobody may be there to read it
        print(localized(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A line on stderr for whoever watches; nothing under --quiet."""
    if not QUIET.get():
        warn(text)


def table_console() -> Any:
    """A console for stdout that shows text as it is: no markup, no emoji codes, no colours of its own on numbers. Sentences, and
    titles and columns of tables, are ours and appear in the person's language; cells and `Text` are shown as they are."""
    from rich.console import Console

    class Speaking(Console):
        def print(self, *objects: Any, **how: Any) -> None:
            super().print(*map(spoken, objects), **how)

    return Speaking(markup=False, emoji=False, highlight=False)


def spoken(thing: Any) -> Any:
    """A sentence, or a table with its title and columns, in the person's language; anything else as it is."""
    from rich.table import Table
    from rich.text import Text

    if isinstance(thing, str):
        return localized(thing)
    if isinstance(thing, Table):
        thing.title = Text(localized(thing.title)) if isinstance(thing.title, str) else thing.title
        for column in thing.columns:
            if isinstance(column.header, str):
                column.header = localized(column.header)
    return thing


RIGHT: dict[str, Any] = {"justify": "right"}
FOLD: dict[str, Any] = {"overflow": "fold"}
FIXED: dict[str, Any] = {"no_wrap": True}
BARE: dict[str, Any] = {"box": None, "padding": (0, 2, 0, 0)}  # of a table: a list, without lines


def make_table(
    columns: Iterable[str | tuple[str, dict[str, Any]]], rows: Iterable[Iterable[Any]] = (), **how: Any
) -> Any:
    """A table of rich's. A column is its heading, or that and what rich is told of it, such as `RIGHT`."""
    from rich.table import Table

    table = Table(**{"title_justify": "left", **how})
    for column in columns:
        heading, options = (column, {}) if isinstance(column, str) else column
        table.add_column(heading, **options)
    for row in rows:
        table.add_row(*row)
    return table


def watcher_console() -> Any:
    """The same for stderr. A reader who leaves is no reason to end the program, as rich would."""
    from rich.console import Console

    class Unbreakable(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True

    return Unbreakable(stderr=True, markup=False, emoji=False, highlight=False)


def duration(seconds: float) -> str:
    """75 as 1:15."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def roughly(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> roughly(42.3), roughly(150.0), roughly(9000.0)
    ('42 s', '2.5 min', '2.5 h')
    """
    size, unit = (seconds, "s") if seconds < 100 else (seconds / 60, "min") if seconds < 5400 else (seconds / 3600, "h")
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"


def short(number: int | float) -> str:
    """A large number in three digits.

    >>> short(1234567), short(912)
    ('1.23 M', '912')
    """
    for unit in ("", " k", " M", " G", " T", " P", " E"):
        if number < 1000 or unit == " E":
            break
        number /= 1000
    return f"{number:.3g}{unit}"


class Progress:
    """How far a long job is. `total` is where it ends, in whatever it counts; `first` where it goes on after an interruption;
    None where nobody can say. Nothing is shown before `after` seconds, so that short jobs stay silent. A job may be part of
    another: they share one place on the terminal, since two displays there would write over, and into, each other."""

    DRAWN: ClassVar[list[Progress]] = []  # on the terminal, the outermost first

    EVERY = 10.0  # seconds between two lines where there is no terminal
    LEAST_SECONDS, LEAST_SHARE, STEADY = 3.0, 0.05, 1.5  # before a time to the end is shown: see `time_left`

    def __init__(
        self,
        what: str,
        total: int | float | None,
        *,
        first: int | float = 0,
        after: int | float = 1.0,
        keep: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.total, self.clock = what, None if total is None else max(1.0, float(total)), clock
        self.after, self.keep = after, keep
        self.began = self.last_line = clock()
        self.done, self.facts = float(first), ""
        # When, and how far it was then: at the first update, and whenever twice the time since has passed.
        self.marks: list[tuple[float, float]] = []
        self.live: Any = None
        self.bar: Any = None
        self.silent = QUIET.get()

    def __enter__(self) -> Progress:
        if self.after <= 0:
            self.draw()
        return self

    def __exit__(self, *_: object) -> None:
        with self.unbroken():
            live, self.live = self.live, None
            if live is not None:
                if self.keep:
                    live.console.print(self.picture())
                self.DRAWN.remove(self)
                if not self.DRAWN:
                    live.stop()

    @contextmanager
    def unbroken(self) -> Iterator[None]:
        """What fails inside ends the display, and nothing else."""
        try:
            yield
        except (OSError, ValueError, AttributeError):
            self.silent, self.live = True, None
            if self in self.DRAWN:
                self.DRAWN.remove(self)

    @property
    def on_terminal(self) -> bool:
        """Whether a person is watching."""
        return sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty()

    def draw(self) -> None:
        """Put the bar on the terminal, if there is one."""
        if self.silent or self.live is not None or not self.on_terminal:
            return
        from rich.console import Group
        from rich.live import Live
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        with self.unbroken():
            shown = self.DRAWN[0].live if self.DRAWN else None
            console = watcher_console() if shown is None else shown.console
            percent = [] if self.total is None else [TextColumn("{task.percentage:>3.0f}%", markup=False)]
            name = TextColumn("{task.description}", markup=False)
            left = TextColumn("{task.fields[left]}", markup=False)
            self.bar = Bar(name, *percent, BarColumn(bar_width=30), left, console=console)
            self.task = self.bar.add_task(self.what, total=self.total, completed=self.done, left="")
            self.live, self.DRAWN[:] = shown, [*self.DRAWN, self]
            if shown is None:
                jobs = self.DRAWN
                self.live = Live(
                    get_renderable=lambda: Group(*(job.picture() for job in list(jobs))),
                    console=console,
                    refresh_per_second=4,
                    transient=True,
                )
                self.live.start()

    def picture(self) -> Any:
        """The bar, and under it the facts: together they are wider than a terminal of 80 columns."""
        from rich.console import Group
        from rich.text import Text

        return Group(self.bar, Text(self.facts, no_wrap=True, overflow="ellipsis"))

    def update(self, done: int | float, facts: str = "", what: str | None = None, *, line: bool = False) -> None:
        """So far it is. `line`: say so even if the last line was a moment ago."""
        self.done, self.facts, self.what = done, facts, what or self.what
        now = self.clock()
        if not self.marks or now - self.marks[0][0] >= max(1.0, 2 * (self.marks[-1][0] - self.marks[0][0])):
            self.marks.append((now, done))
        if self.silent:
            return
        if self.on_terminal:
            if self.live is None and now - self.began > self.after:
                self.draw()
            if self.live is not None:
                with self.unbroken():
                    left = self.time_left(now)
                    self.bar.update(self.task, completed=done, total=self.total, description=self.what, left=left)
        elif line or now - self.last_line > self.EVERY:
            self.last_line = now
            warn("  ".join(localized(part) for part in (self.what, facts, self.time_left(now)) if part))

    def time_left(self, now: float) -> str:
        """The time to the end at the speed of late: at least the later half of the time since the first update, so that what was
        slow only in the beginning (a model being compiled, a first batch) is forgotten. Empty where that means nothing
        yet: before some seconds, and before some of the work, unless the speed has been steady."""
        if (
            self.total is None
            or not self.done < self.total
            or not self.marks
            or now - self.marks[0][0] < self.LEAST_SECONDS
        ):
            return ""
        first, (then, before) = self.marks[0][1], self.marks[-2]
        speed = (self.done - before) / (now - then)
        speeds = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(self.marks[-3:])]
        steady = len(speeds) == 2 and max(speeds) <= self.STEADY * min(speeds)
        if speed <= 0 or not (steady or self.done - first >= self.LEAST_SHARE * (self.total - first)):
            return ""
        return f"ETA {duration((self.total - self.done) / speed)}"

    def message(self, text: str) -> None:
        """A line that stays, above the bar."""
        if self.silent:
            return
        if self.live is not None:
            with self.unbroken():
                self.live.console.print(localized(text))
        else:
            warn(text)


@contextmanager
def at_work(what: str, *, line: bool = True) -> Iterator[None]:
    """Shows what is going on inside, of which nobody can say how far it is. `line`: where there is no terminal, too, if it takes
    longer than a second."""
    with Progress(localized(what), None, after=0) as display:
        later = threading.Timer(1.0, warn, [what])
        later.daemon = True
        if line and not display.silent and not display.on_terminal:
            later.start()
        try:
            yield
        finally:
            later.cancel()


def watched(items: Iterable[T], what: str, total: int, *, every: int = 1) -> Iterator[T]:
    """The items as they come, counted on the display; `every`: of many, only each so many is worth an update."""
    # Here, and not in whatever thread takes the items: whether to be quiet is the caller's to say.
    display = Progress(what, total)

    def counted() -> Iterator[T]:
        with display:
            for done, item in enumerate(items, 1):
                yield item
                if done % every == 0:
                    display.update(done, f"{done:,} of {total:,}")

    return counted()
