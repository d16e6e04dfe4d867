"""run.json: what it holds, how it is sealed, and which names in a run's folder are the run's own."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

from glassformer.config import VERSION, ModelConfig
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.durable import ListedFile, to_json, write_atomically
from glassformer.language import _

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizers

Build = Callable[[Any], Any] | None
"""A function with a name that changes a model when it is built, and gives it back; None changes nothing."""

RUN_FORMAT = 1
REPLACED = ".replaced.json"
"""The file in a run that was set aside for another; it says whose place the run had."""
OWN = re.compile(
    r"(\.tmp-)?(run\.json|recipe\.toml|labels\.json|tokenizer(\.source|\.target)?\.json(\.tmp)?)"
    r"|(\.tmp-)?\.replaced\.json|\.lock|parity\.json|(\.tmp-)?shortlist\.safetensors|metrics\.jsonl|samples\.jsonl|train\.log|curves\.(png|svg)"
    r"|data/(train|val|test)\.[\w.-]+|data/(\.tmp-)?report\.json"
    r"|((checkpoints|snapshots|history)/(damaged-|\.tmp-|\.trash-)?step-\d{8,}(-\d+)?|(\.tmp-|\.trash-)?(final|start)(-\d+)?)"
    r"/([a-z]+\.safetensors|state\.json|manifest\.json|SEAL)"
    r"|tensorboard/events\.out\.[^/]+"
)
"""The names that a run writes, and so may remove."""


class OriginFacts(TypedDict, total=False):
    """The run that another one begins with: where it was, and its id."""

    path: str
    id: str | None


class TrialFacts(TypedDict):
    """The trials by which a run's kernels were chosen: on which processor, and their gains by name and size."""

    processor: str
    gains: dict[str, dict[str, float]]


RunFacts = TypedDict(
    "RunFacts",
    {
        "recipe": Required[dict[str, Any]],
        "format": Required[int],
        "glassformer": str,
        "files": dict[str, ListedFile],
        "seal": str | None,
        "id": str | None,
        "from": OriginFacts,
        "trials": TrialFacts,
        "build": str,  # the name of what changed its model
    },
    total=False,
)
"""The entries of run.json; others are kept as they are."""


def migrated(facts: dict[str, Any], path: Path) -> dict[str, Any]:
    """The facts of a run as this version writes them. Format 1 is the first, so there is nothing to translate yet; what an
    older reader cannot know, it refuses in a sentence."""
    version = facts.get("format")
    if version == RUN_FORMAT:
        return facts
    age = "newer" if isinstance(version, int) and version > RUN_FORMAT else "unknown"
    raise UserError(
        "{path} is a run in the {age} format {format}, written by glassformer "
        "{writer}; this is glassformer {version}, which reads format {known_format}: install "
        "the version that wrote it, or a newer one",
        path=path,
        age=age,
        format=str(version)[:40],
        writer=str(facts.get("glassformer"))[:40],
        version=VERSION,
        known_format=RUN_FORMAT,
    )


def is_run(path: Path) -> bool:
    """Whether a folder says that it is a run."""
    return os.path.exists(path / "run.json")


def read_facts(folder: Path) -> dict[str, Any]:
    """The content of run.json, held against its schema."""
    path = folder / "run.json"
    try:
        facts = structured.read(path, dict[str, Any])
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error.strerror) from None
    if "recipe" not in facts:
        raise UserError("{path} cannot be read: it has no recipe", path=path)
    facts = migrated(facts, folder)
    known = structured.convert(facts, RunFacts, str(path))
    names = known.get("files", {})
    if strange := [n for n in names if Path(n).is_absolute() or ".." in Path(n).parts or "\0" in n]:
        raise UserError(
            "{path} cannot be read: it lists {strange!r}, which is no file inside the run",
            path=path,
            strange=strange[0][:80],
        )
    return facts  # type: ignore[no-any-return]


def size_problem(tokenizers: Tokenizers, model: ModelConfig) -> str | None:
    """A tokenizer or labels of another model would give answers, and wrong ones: what does not fit, in words."""
    sizes = {
        _("target words"): (tokenizers.target.vocab_size, model.vocab_size),
        _("source words"): (tokenizers.source.vocab_size, model.source_vocab_size or model.vocab_size),
    }
    if model.head != "mlm":
        sizes[_("labels")] = (len(tokenizers.labels), model.n_label)
    for what, (have, expected) in sizes.items():
        if have != expected:
            return _("it has {have:,} {what} and its model {expected:,}", have=have, what=what, expected=expected)
    return None


def check_build(path: Path, facts: dict[str, Any], build: Build) -> None:
    """The weights of a model that was changed when it was built are no other model's: nothing is made of them without that."""
    if (known := facts.get("build")) != (given := build and build.__name__):
        raise UserError(
            "the model of {path} was trained with build={known}, and here build={given}: its weights are of no use without that "
            "change",
            path,
            known,
            given,
        )


def seal_of(facts: dict[str, Any]) -> str:
    """The checksum of everything else in run.json."""
    return hashlib.sha256(to_json({k: v for k, v in facts.items() if k != "seal"})).hexdigest()


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """run.json with these facts, sealed anew."""
    unsealed = {"format": RUN_FORMAT} | {name: fact for name, fact in facts.items() if name != "seal"}
    write_atomically(folder / "run.json", to_json(unsealed | {"seal": seal_of(unsealed)}))
