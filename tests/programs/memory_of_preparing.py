"""How much memory that is no mapped file `prepare` takes for a large text in the folder of its argument."""

import sys
import threading
from pathlib import Path

import psutil

from glassformer.config import Recipe
from glassformer.data.prepare import prepare

folder = Path(sys.argv[1])
settings = Recipe.from_dict(
    {
        "model": {"family": "gpt"},
        "data": {
            "task": "text",
            "train": str(folder / "text.txt"),
            "val_fraction": 0.001,
            "tokenizer": "char",
            "tokenizer_file": str(folder / "mine.json"),
        },
    }
)


def anonymous():
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared


before = anonymous()
top = [before]
done = threading.Event()


def watch():
    while not done.wait(0.02):
        top[0] = max(top[0], anonymous())


watcher = threading.Thread(target=watch)
watcher.start()
prepare(settings, folder)
done.set()
watcher.join()
print(top[0] - before)
