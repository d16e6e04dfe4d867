"""`glassformer import`: somebody else's model as a run."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from glassformer.cli import options
from glassformer.errors import ConfigError
from glassformer.language import _, localized
from glassformer.screen import warn

if TYPE_CHECKING:
    from glassformer.formats.huggingface.importing import Imported
    from glassformer.runs.folder import RunFolder


@options.documented
def import_model(
    source: str,
    out: options.RunOut = None,
    file: Path | None = None,
    head: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    pickle: bool = False,
    tokenizer: Path | None = None,
    adapter: Path | None = None,
    sample: Path | None = None,
) -> None:
    """Take in a model that was made elsewhere: [bold]glassformer import opus-mt-de-en[/].

    GPT-2, Llama, Mistral, Qwen2, Qwen3, OPT, Marian (OPUS-MT), Pegasus, BART, mBART-50, M2M100 (NLLB), T5, BERT and RoBERTa with
    their heads or without one, and nanoGPT. What comes out is a run, which the other commands take like any other.
    Only safetensors are read; of a name at the hub no pickle and no code is fetched.
    """
    from glassformer.formats.huggingface.importing import Languages
    from glassformer.formats.import_run import read_source, write_run

    if head not in (None, "mlm", "next-sentence"):
        raise ConfigError("--head is mlm or next-sentence, not {head!r}", head)
    languages = Languages(source_language, target_language)
    if adapter is not None:
        from glassformer.formats.adapter import with_adapter
        from glassformer.runs.folder import RunFolder

        if head or pickle or tokenizer or sample or languages != Languages():
            raise ConfigError(
                "with --adapter the source is a run of yours; of the other options it takes --out and --file"
            )
        found = with_adapter(RunFolder.open(Path(source)), adapter)
        run = write_run(found, out or Path("runs") / found.recipe.name, file)
    else:
        found = read_source(source, head=head, languages=languages, pickle=pickle, tokenizer=tokenizer)
        place = out or Path("runs") / found.recipe.name
        run = write_run(found, place, file, lambda draft: prove(Path(source), found, draft, head, sample, place))
    for note in found.notes:
        warn(note)
    tell_what_is_next(run, found)


def tell_what_is_next(run: RunFolder, found: Imported) -> None:
    """What the run is, and what can be done with it."""
    from glassformer.tasks import TextModel

    model = run.load_model()
    verb = TextModel(model, run.tokenizers, run.recipe).verb
    what = found.model_type, model.num_params(), run.path
    print(localized(_("a {model_type} of {num_params:,} parameters is now the run {path}", *what)))
    path = quote(str(run.path))
    if verb == "embed":
        print(f'next: python -c \'import glassformer; print(glassformer.load("{run.path}").embed("…"))\'')
    else:
        text = '"… ___ …"' if verb == "fill" else '"…"'
        print(f"next: glassformer {verb} {path} {text}")
    print(f"      glassformer train RECIPE --from {path}")


def prove(source: Path, found: Imported, draft: RunFolder, head: str | None, sample: Path | None, place: Path) -> None:
    """Compare the run with its source before it takes its place, and print the report; one that is another model is given up."""
    from glassformer.cli.export import show
    from glassformer.formats.huggingface.import_parity import cannot_compare, import_parity
    from glassformer.formats.parity import ParityFailed

    if (why := cannot_compare(source, found, head)) is not None:
        warn(f"{place}: {localized(why)}")
        return
    try:
        texts = None if sample is None else [t for t in sample.read_text(encoding="utf-8").splitlines() if t.strip()]
        report = import_parity(source, found, draft, texts)
    except (ParityFailed, OSError, UnicodeDecodeError) as error:
        if not isinstance(error, ParityFailed):
            raise ConfigError("the sample {sample} cannot be read: {error}", sample, error) from None
        show(error.report, as_json=False)
        warn(_("glassformer: {verdict}; nothing was left in {out}", error, place))
        raise SystemExit(1) from None
    show(report, as_json=False)
