"""While many requests are answered, Python's full garbage collections wait, and those of young objects are rarer.

Thousands of requests and answers are as many objects, and at every so many new ones Python looks through *all* objects of the
process, those of torch included, for cycles. Answering 29,000 sentences it did so four times, and spent more time on it than on
anything else; a look at the young ones after every 700, twice for each, was still a tenth. Requests and answers hold no cycles;
they are freed when they are let go, as ever, and so are young cycles.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

NEVER = 1_000_000_000
MANY = 20_000  # young objects: a look at each would be felt
SELDOM = 500_000  # new objects (that have not gone again) between two looks at the young ones
lock = threading.Lock()
users = 0
before = (0, 0, 0)


@contextmanager
def full_collections_wait() -> Iterator[None]:
    """Inside, only young objects are searched for cycles. The first thread to come in changes the setting, the last one to
    leave puts it back, unless somebody else has set it meanwhile. What is young then, where it is much, counts as old at once:
    it waits for the next full collection, which is as far off as it was.

    >>> with full_collections_wait():
    ...     gc.get_threshold()[2] == NEVER
    True
    """
    global users, before
    with lock:
        users += 1
        if users == 1:
            before = gc.get_threshold()
            first, second, _ = before
            gc.set_threshold(max(first, SELDOM) if first else 0, second, NEVER)
    try:
        yield
    finally:
        with lock:
            users -= 1
            if users == 0 and gc.get_count()[0] > MANY and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # into the oldest generation, without a look at each
            if users == 0 and gc.get_threshold()[2] == NEVER:
                gc.set_threshold(*before)
