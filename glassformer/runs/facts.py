"""run.json: what it holds, how it is sealed, and which names in a run's folder are the run's own."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict

from glassformer.config import VERSION, ModelConfig
from glassformer.errors import UserError
from glassformer.files import structured
from glassformer.files.checksums import ListedFile
from glassformer.files.durable import to_json
from glassformer.language import _

if TYPE_CHECKING:
    from glassformer.text.tokenizers import Tokenizers

RUN_FORMAT = 1
REPLACED = ".replaced.json"
"""In a run that was set aside for another: whose place it had."""
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
    },
    total=False,
)
"""What run.json holds; what else it holds is kept."""


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
    """What a run's run.json says, held against its schema."""
    path = folder / "run.json"
    try:
        facts = structured.read(path, dict[str, Any])
    except OSError as error:
        raise UserError("{path} cannot be read: {reason}", path=path, reason=error.strerror) from None
    if "recipe" not in facts:
        raise UserError("{path} cannot be read: it has no recipe", path=path)
    facts = migrated(facts, folder)
    known = structured.convert(facts, RunFacts, str(path))
    if strange := [n for n in known.get("files", {}) if Path(n).is_absolute() or ".." in Path(n).parts]:
        raise UserError(
            "{path} cannot be read: it lists {strange!r}, which lies outside the run",
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


def mistake_in_words(path: Path, model: ModelConfig) -> str:
    """What is said wherever a run of the museum is used."""
    return _(
        "{path} has the mistake {mistake} planted in it, for the museum: not a model to rely on",
        path=path,
        mistake=model.mistake,
    )


def seal_of(facts: dict[str, Any]) -> str:
    """The checksum of everything else in run.json."""
    return hashlib.sha256(to_json({k: v for k, v in facts.items() if k != "seal"})).hexdigest()
