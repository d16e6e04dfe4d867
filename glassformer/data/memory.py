"""Data that is in memory already: lists of pairs, Hugging Face data sets, pandas and polars tables, as examples.

[("Guten Tag", "good day"), …]          pairs, classes or tags, as tuples
[{"source": "…", "target": "…"}, …]     records, by the names of fields that the configuration gives
["a text", …]                           documents
a datasets.Dataset, a pandas or a polars DataFrame
{"train": …, "val": …, "test": …}       any of these for each split, such as a DatasetDict
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from glassformer.config import DataConfig
from glassformer.config.fields import did_you_mean
from glassformer.data.files import BadLine, Document, ReadContext
from glassformer.data.origins import Split
from glassformer.data.readers import LocatedExample, record_row, tagged_row
from glassformer.data.records import PART_NAMES, labelled_rows
from glassformer.errors import UserError
from glassformer.language import _

WHERE = "the data in memory"


def given_splits(data: Any) -> dict[Split, Any]:
    """What was handed in, by split: one collection is all training data."""
    if isinstance(data, Mapping):
        splits: dict[Split, Any] = {}
        for split, names in PART_NAMES.items():
            name = next((name for name in names if name in data), None)
            if name is not None:
                splits[split] = data[name]  # type: ignore[index]
        known = {name for names in PART_NAMES.values() for name in names}
        if type(data) is dict and (others := [str(name) for name in data if name not in known]):
            raise UserError(
                "data in memory has no part {name!r}{suggestion}; its parts are train, val and test",
                others[0],
                did_you_mean(others[0], sorted(known)),
            )
        if "train" not in splits:
            raise UserError("data in memory needs a 'train'; it has {data}", ", ".join(map(str, data)) or "nothing")
        return splits
    return {"train": data}


def records_in(data: Any) -> Iterator[Any]:
    """The rows of a table as records; the items of anything else."""
    if hasattr(data, "features"):  # datasets.Dataset
        yield from labelled_rows(data)
    elif hasattr(data, "iter_rows"):  # polars
        yield from data.iter_rows(named=True)
    elif hasattr(data, "itertuples"):  # pandas
        names = list(map(str, data.columns))
        for values in data.itertuples(index=False, name=None):
            yield dict(zip(names, values, strict=True))
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
        yield from data
    else:
        raise UserError("data in memory must be a list of examples or a table, not {kind}", type(data).__name__)


def memory_rows(config: DataConfig, data: Any, context: ReadContext) -> Iterator[LocatedExample]:
    """The examples of one split, each with its number."""
    for number, item in enumerate(records_in(data), 1):
        row: LocatedExample | None
        if isinstance(item, Mapping):
            row = record_row(config, number, dict(item), WHERE, context.complain)
        elif config.task == "text" and isinstance(item, str):
            row = LocatedExample(Document(item, ends=True), WHERE, number) if item.strip() else None
        elif config.task == "tag" and is_pair_of(item, list | tuple):
            row = tagged_row(list(map(str, item[0])), list(map(str, item[1])), WHERE, number, context.complain)
        elif config.task in ("pairs", "classify") and is_pair_of(item, str):
            row = LocatedExample((item[0].strip(), item[1].strip()), WHERE, number)
        else:
            shapes = {
                "pairs": "(source, target)",
                "classify": "(text, label)",
                "tag": "(words, tags)",
                "text": "a text",
            }
            shown = repr(item)[:60]
            context.complain(
                BadLine(
                    "field",
                    WHERE,
                    number,
                    _("an example must be {shapes} or a record, not {shown}", shapes[config.task], shown),
                )
            )
            continue
        if row is not None:
            yield row


def is_pair_of(item: Any, kind: Any) -> bool:
    """Two things of a kind."""
    return isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(side, kind) for side in item)
