"""What a preparation read and what it left: kept in the run as data/report.json, for whoever asks what a model learned from.

The files it was made from are listed with size and checksum, so that a run can say later whether one has changed since. They
are not needed any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from glassformer.config.data import DataConfig
from glassformer.data.origins import shown
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import to_json, write_atomically
from glassformer.files.user_data import FileFacts, UserFile
from glassformer.language import _

NAME = "report.json"
FORMAT = 1
LISTED_FILES = 1000  # of a folder with more the first so many are watched for changes


@dataclass(frozen=True)
class DataReport:
    """Examples by split; what was left out and why; the files; how the splits came about, in words."""

    examples: dict[str, int]
    learned: int = 0  # training examples an epoch, each as often as its weight says
    empty: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    first_skipped: list[str] = field(default_factory=list)
    left_out: int = 0
    remarks: list[str] = field(default_factory=list)  # on columns that are not read, and on their names
    in_train: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)  # targets that the tokenizer cannot write as they are
    lost_example: list[str] = field(default_factory=list)  # the first of them, and what is written in its place
    splits: str = ""
    split_off: tuple[str, ...] = ()
    cut_short: bool = False
    files: list[FileFacts] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Into a run's data folder."""
        write_atomically(folder / NAME, to_json({"format": FORMAT, **asdict(self)}))

    @staticmethod
    def read(folder: Path) -> DataReport | None:
        """Of a run's data folder; None where it was made before reports were."""
        path = folder / NAME
        try:
            return structured.read(path, DataReport)  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None
        except (OSError, structured.Unreadable) as error:
            why = (
                _("{path} cannot be read: {reason}", path, error.strerror) if isinstance(error, OSError) else str(error)
            )
            raise UserError("{why}; see `glassformer doctor`, and bring it back from a copy", why) from None

    def splits_in_words(self, config: DataConfig) -> str:
        """How the splits came about; of a run of an earlier version, as it was written then."""
        told = in_words(self.split_off, config.val_fraction, config.task, config.builtin)
        return told if told == self.splits else self.splits

    def notes(self) -> Iterator[str]:
        """What a person should know before training on this, a sentence each."""
        for split, count in self.empty.items():
            yield _("{count:,} of the {split} examples have an empty side and are passed over", count, split)
        if self.skipped:
            shown_lines = "".join(f"\n    {line}" for line in self.first_skipped)
            more = "\n    …" if self.skipped > len(self.first_skipped) else ""
            yield _(
                "{count:,} lines cannot be used and are skipped (data.on_error=skip):{lines}",
                self.skipped,
                shown_lines + more,
            )
        yield from self.remarks
        if self.left_out:
            yield _("{count:,} training examples are left out, since they would give away held-out ones", self.left_out)
        for split, count in self.lost.items():
            target, written = (f"{text[:80]}…" if len(text) > 80 else text for text in self.lost_example)
            yield _(
                "{count:,} {split} targets cannot be written with this vocabulary, whatever is learned: {target!r} comes out as "
                "{written!r}; data.tokenizer=bpe writes every text",
                count,
                split,
                target,
                written,
            )
        for split, count in self.in_train.items():
            yield _(
                "{count:,} training examples stand in {split} as well ({examples:,} examples): its score will be of memory; "
                "see `glassformer data check`",
                count,
                split,
                self.examples.get(split, 0),
            )

    def changed_files(self) -> Iterator[str]:
        """A sentence for each file that is still there and no longer what it was. One that is gone is none of our business."""
        for known in self.files[:LISTED_FILES]:
            path = Path(known.path)
            try:
                status = path.stat()
                if status.st_size == known.size and status.st_mtime_ns == known.modified:
                    continue
                if status.st_size == known.size:
                    with UserFile(path) as file:
                        if file.facts().sha256 == known.sha256:
                            continue
            except (OSError, UserError):
                continue
            yield _("{path} has changed since this run was prepared; it goes on with what it read then", shown(path))


def in_words(split_off: tuple[str, ...], fraction: float, task: str, builtin: str | None) -> str:
    """How the splits came about."""
    if builtin is not None:
        return _("the splits of the built-in {builtin}", builtin)
    if not split_off:
        return _("as given")
    by = _("the end of a file or whole files") if task == "text" else _("a hash of the source")
    return _(
        "{split_off} taken out of train, {fraction:.0%} each, by {by}",
        _("val and test") if len(split_off) == 2 else split_off[0],
        fraction,
        by,
    )
