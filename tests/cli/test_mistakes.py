"""The mistakes people make at the command line, one table: the command, and the sentence it is answered with.

Each is one line on stderr that says what is wrong and what to do, exit code 2, nothing on stdout, and not a byte changed in
the folder. Caught, case by case: a traceback, a silent other answer, a sentence that no longer says what to do.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from glassformer.cli.main import main, tell
from tests.talking import make_run

RECIPE = """
[model]
n_layer = 1
n_head = 2
n_embd = 16
block_size = 32
[data]
train = "pairs.tsv"
tokenizer = "word"
[train]
steps = 4
warmup = 1
device = "cpu"
"""

MISTAKES: list[tuple[str, str]] = [
    # ---- words that were mistyped
    ("trane mine.toml", "there is no command 'trane' (did you mean 'train'?)"),
    ("data chek pairs.tsv", "there is no command 'chek' (did you mean 'check'?); see: glassformer data --help"),
    ("train mine.toml --overwite", "there is no option --overwite (did you mean '--overwrite'?)"),
    ("train datess", "there is no recipe 'datess' (did you mean 'dates'?)"),
    ("train mine.tml", "there is no recipe 'mine.tml'"),
    ("train mine.tsv", "there is no file mine.tsv"),
    ("train mine.toml train.step=3", "there is no setting 'step' in [train] (did you mean 'steps'?)"),
    ("train mine.toml trian.steps=3", "there is no part 'trian' (did you mean 'train'?)"),
    ("train mine.toml steps=3", "'steps=3' is not of the form key.sub=value, such as train.steps=200"),
    ("train mine.toml train.steps", "is not of the form key.sub=value"),
    ("train typo.toml", "there is no setting 'warm_up' in [train] (did you mean 'warmup'?)"),
    ("train mine.toml model.family=transfomer", "(did you mean 'transformer'?)"),
    ("train mine.toml model.preset=gpt-2", "there is no preset 'gpt-2' (did you mean 'gpt2'?)"),
    (
        "plan runs/mt",
        "runs/mt is a run; `glassformer info runs/mt` shows it, `glassformer train runs/mt --resume` goes on",
    ),
    ("info gpt-2", "there is no preset, recipe or run 'gpt-2' (did you mean 'gpt2'?)"),
    ("info --settings modle", "there is no part 'modle' (did you mean 'model'?)"),
    ("info --settings train.lr", "there is no setting 'lr' in [train]"),
    ("translate runs/mt hello --set alhpa=1", "there is no setting 'alhpa' in [decode] (did you mean 'alpha'?)"),
    ("translate runs/mt hello --engine abacus", "decode.engine must be one of"),
    # ---- what is missing
    ("translate", "missing argument"),
    ("info", "say what to look at"),
    ("train", "say what to train: a recipe's name, a .toml file, or a file of data, such as pairs.tsv"),
    ("init nowhere.tsv", "there is no file nowhere.tsv"),
    ("init pairs.tsv --out mine.toml", "mine.toml is there already; choose another name with --out"),
    ("train nowhere.toml", "there is no recipe file nowhere.toml"),
    ("train mine.toml data.train=pears.tsv", "pears.tsv (did you mean 'pairs.tsv'?)"),
    ("translate runs/nowhere hello", "there is no run runs/nowhere"),
    ("translate runs/mt --file nowhere.txt", "there is no file nowhere.txt"),
    ("translate runs/mt --file lines.txt --out no/such/folder.txt", "no/such/folder.txt cannot be written"),
    ("translate runs/mt hello --glossary nowhere.tsv", "the glossary nowhere.tsv cannot be read"),
    ("evaluate runs/nowhere", "there is no run runs/nowhere"),
    ("doctor runs/nowhere", "runs/nowhere"),
    ("look runs/nowhere hello", "there is no run runs/nowhere"),
    ("heads runs/nowhere", "there is no run runs/nowhere"),
    ("compare runs/mt runs/nowhere", "there is no run runs/nowhere"),
    ("data check nowhere.tsv", "there is no file"),
    ("translate runs/mt hello --step 500", "has no checkpoint of step 500"),
    # ---- folders and files that are something else
    ("train mine.toml --out runs/mt", "runs/mt holds a run already"),
    ("train runs/mt", "runs/mt is a run, not a recipe; go on with it by: glassformer train runs/mt --resume"),
    ("train mine.toml --out thesis", "thesis"),
    ("train thesis --resume", "thesis is not a run"),
    ("translate thesis hello", "thesis is not a run: it has no run.json"),
    ("translate runs/mt --file thesis", "thesis is a folder, not a file"),
    ("translate runs/mt --file /dev/zero", "/dev/zero is a device"),
    ("translate runs/mt --file lines.txt --out pairs.tsv", "pairs.tsv is there already"),
    ("translate runs/mt --file lines.txt --out lines.txt", "the answers need a file of their own"),
    ("translate runs/mt --file lines.txt --out pairs.tsv --resume", "pairs.tsv was not begun by this command"),
    ("info runs/mt model.n_layer=2", "is a run, whose settings are what they are"),
    ("train broken.toml", "broken.toml is not valid TOML"),
    ("train latin.toml", "latin.toml is not valid TOML"),
    (
        "train mine.toml data.train=one-column.tsv",
        "only one column; each line must be source and target, with a tab between (data.on_error=skip leaves such lines out, "
        "and `glassformer data check` finds them all)",
    ),
    ("train mine.toml data.train=empty.tsv", "empty.tsv is empty"),
    ("train mine.toml data.train=latin.tsv", "latin.tsv, line 2: not valid UTF-8 (byte 0xfc)"),
    ("train mine.toml data.train=short.de data.train_target=long.en", "short.de: 80 lines, but long.en has 81"),
    # ---- a model of another family
    ("translate runs/gpt hello", "this run is a GPT made to generate; it cannot translate"),
    ("generate runs/mt hello", "this run is an encoder-decoder made to translate; it cannot generate"),
    ("fill runs/mt 'a ___ b'", "it cannot fill"),
    ("classify runs/bert hello", "this run is a BERT made to fill; it cannot classify"),
    ("tag runs/bert hello", "it cannot tag"),
    ("train mine.toml model.family=gpt model.n_encoder_layer=2", "model.n_encoder_layer is for the encoder-decoder"),
    ("train mine.toml model.head=tag", "belong to family bert"),
    # ---- options that do not go together
    (
        "translate runs/mt hello --beam 4 --set temperature=0.5",
        "decode.beam=4 searches and decode.temperature=0.5 draws",
    ),
    ("translate runs/mt hello --n-best 5 --beam 2", "decode.n_best=5 asks for more than the 2"),
    ("translate runs/mt hello --set top_k=5", "decode.top_k chooses among which tokens to draw, and nothing is drawn"),
    ("translate runs/mt hello --trace", "--trace tells more than a line can hold; add --json"),
    ("translate runs/mt hello --file lines.txt", "texts come as arguments or from --file, not both"),
    ("translate runs/mt hello --resume", "--resume goes on with the answers to a file"),
    ("translate runs/mt hello --term 丂", "丂"),
    ("translate runs/mt hello --term cat --ban cat", "contains a sequence that is banned; drop one of the two"),
    ("translate runs/mt hello --ban ''", "an empty text cannot be banned"),
    ("generate runs/gpt a --stream --json", "--stream shows text as it comes and --json whole answers"),
    ("generate runs/gpt a b --stream", "--stream shows one text as it is written"),
    ("generate runs/gpt a --term cat=dog", "--term WORD=TERM is for translations"),
    ("evaluate runs/mt --source lines.txt", "--source and --target go together"),
    ("heads runs/mt --to runs/smaller", "--to says where a pruned run goes"),
    ("train mine.toml data.builtin=dates", "data.builtin and data.train are both set"),
    # ---- values that cannot be
    ("train mine.toml train.steps=many", "train.steps must be a whole number, not 'many'"),
    ("train mine.toml train.steps=0", "train.steps must be at least 1, not 0"),
    ("train mine.toml train.steps=1.5", "train.steps must be a whole number"),
    ("train mine.toml model.dropout=2", "model.dropout must be at least 0 and below 1, not 2.0"),
    ("train mine.toml model.n_head=3", "model.n_embd 16 is not divisible by model.n_head 3"),
    ("train mine.toml train.compile=maybe", "train.compile must be true or false, not 'maybe'"),
    ("train mine.toml train.device=mps", "torch sees no GPU of Apple's here; use train.device=cpu"),
    ("train mine.toml train.metric=comet", "train.metric must be one of auto, loss, "),
    ("evaluate runs/mt --file pairs.tsv --perturb loud", "perturb is one of upper, title, "),
    ("translate runs/mt hello --set keep_numbers=true", "keep_numbers=true goes with --markup"),
    ("translate runs/mt hello --set document=perhaps", "document must be true or false, not 'perhaps'"),
    ("translate runs/mt --file lines.txt --set document=true --markup", "give one of them"),
    ("improve pairs.tsv --minutes inf", "--minutes is a number of minutes above 0, not inf"),
    ("train mine.toml data.context=1", "with data.context the sentences of a document stay together"),
    ("train mine.toml train.metric=accuracy", "train.metric=accuracy is not measured for transformer on pairs"),
    ("train mine.toml train.device=tpu", "train.device must be one of auto, cpu, cuda, mps, not 'tpu'"),
    ("train mine.toml train.learning_rate=0", "train.learning_rate must be above 0"),
    ("train mine.toml train.threads=0", "train.threads must be at least 1, not 0"),
    ("train mine.toml train.threads=1000000", "train.threads must be at most 1,024"),
    ("train mine.toml data.workers=-1", "data.workers cannot be negative"),
    ("train mine.toml train.betas=1,1", "train.betas must both be at least 0 and below 1"),
    ("train mine.toml train.average_last=-1", "train.average_last cannot be negative"),
    ("train mine.toml model.preset=[1]", "there is no preset '[1]'"),
    ("train mine.toml model.n_layer=1000000000", "model.n_layer must be at most 10,000"),
    ("translate runs/mt hello --beam 1000000", "decode.beam must be at most 10,000"),
    ("translate runs/mt hello --max-new-tokens 1000000000", "decode.max_new_tokens must be at most 1,000,000"),
    ("translate runs/mt hello --beam 0", "decode.beam must be at least 1, not 0"),
    ("translate runs/mt hello --beam wide", "invalid value for '--beam'"),
    ("translate runs/mt hello --device tpux", "there is no device 'tpux'; use auto, cpu or cuda"),
    ("translate runs/mt hello --set alpha", "--set takes NAME=VALUE, such as alpha=1, not 'alpha'"),
    ("classify runs/bert hello --top 0", "--top must be at least 1, not 0"),
    ("evaluate runs/mt --limit 0", "--limit must be at least 1, not 0"),
    ("evaluate runs/mt --split dev", "train, val or test, not 'dev'"),
    ("info gpt2 --context 0", "--context must be at least 1, not 0"),
    ("data get tatoeba:en-xx", "tatoeba:en-xx"),
    # ---- cleaning
    ("data clean nowhere.tsv --out c.tsv", "there is no file nowhere.tsv"),
    ("data clean pairs.tsv --out pairs.tsv", "pairs.tsv is there already"),
    (
        "data clean pairs.tsv --out c.tsv --languages en",
        "--languages are two codes with a comma between, such as en,de",
    ),
    (
        "data clean pairs.tsv --out c.tsv --without spelling",
        "there is no rule 'spelling'; there are mojibake, entities",
    ),
    ("data clean pairs.tsv latin.tsv --out c.tsv", "pairs.tsv, latin.tsv: give one file of pairs, or two aligned ones"),
    ("data clean pairs.tsv --out c.xlsx", "--out c.xlsx: clean pairs are written as a TSV"),
    ("data clean pairs.tsv --out no/c.tsv", "there is no folder no to write c.tsv into"),
    ("train mine.toml --out", "--out takes a value"),
    # ---- a decoder alone, positions, made-up data
    (
        "train sort model.family=gpt data.size=40",
        'set data.prompt_answer=true (or data.task="text" for plain text), or use the encoder-decoder',
    ),
    ("train copy data.test_lengths=[9,3]", "data.test_lengths is a shortest and a longest length, such as [20, 30]"),
    ("train dates data.test_lengths=[20,30]", "data.test_lengths belongs to the built-in copy, reverse and sort"),
    (
        "train dates-gpt model.rotary_scaling=ntk",
        "need both model.rotary_scaling (linear, ntk or llama3) and a model.rotary_factor",
    ),
    ("train mine.toml model.rotary_scaling=linear model.rotary_factor=2", "is for rotary positions"),
    ("train in-context data.task=classify", "train.metric=exact_match is not measured for gpt on classify"),
    ("score runs/mt", "score needs --file: a file of pairs, such as a TSV"),
    ("score runs/bert --file pairs.tsv", "a BERT finds labels or hidden words and has no probability of a text"),
    ("reproduce dattes", "dattes"),
    # ---- words that would have no effect
    ("train runs/mt --resume --data pairs.tsv --out two", "leave --data, --out out"),
    ("train mine.toml --out runs/mt --resume --from runs/gpt", "did not begin with the weights of a run"),
    ("train mine.toml --resume --overwrite", "leave one of them out"),
    ("train dates data.val=pairs.tsv", "leave data.val out"),
    ("evaluate runs/mt --split val --file pairs.tsv", "pairs.tsv are no split of the run"),
    ("evaluate runs/mt --contrastive pairs.tsv --engine int8", "leave out other data, settings and --out"),
    ("init --task classify", "name the file"),
    ("improve runs/mt --only backtranslate --out new.tsv", "text of the target language by --text"),
    (
        "improve runs/mt --only backtranslate --text lines.txt --out new.tsv --minutes 3",
        "does not take --minutes; leave",
    ),
    ("improve runs/mt --only clean", "--only is distill or backtranslate, not 'clean'"),
    ("improve pairs.tsv --jobs 2", "`glassformer improve` does not take --jobs"),
    ("info nowhere.json --tokenize Hund", "nowhere.json cannot be read"),
    # ---- how it was called before
    ("backtranslate runs/mt --file lines.txt", "now: glassformer improve RUN --only backtranslate --text FILE --out"),
    ("distill runs/mt", "distill is written differently now: glassformer improve RUN --only distill"),
    ("tokenize runs/mt Hund", "tokenize is written differently now: glassformer info RUN --tokenize TEXT"),
    ("translate runs/mt hello --top-k 5", "--top-k is a setting and no option; write --set top_k=…"),
    ("generate runs/gpt hello --min-p=0.1", "--min-p is a setting and no option; write --set min_p=…"),
]


def write_home(home: Path) -> None:
    """A folder as people have it: recipes good and bad, data good and bad, runs, and a thesis."""
    make_run(home / "runs" / "mt")
    make_run(home / "runs" / "gpt", model={"family": "gpt"}, data={"task": "text"})
    make_run(home / "runs" / "bert", model={"family": "bert"}, data={"task": "text"})
    (home / "thesis").mkdir()
    (home / "thesis" / "thesis.docx").write_bytes(b"years of work")
    (home / "mine.toml").write_text(RECIPE, encoding="utf-8")
    (home / "typo.toml").write_text(RECIPE.replace("warmup", "warm_up"), encoding="utf-8")
    (home / "broken.toml").write_text("[model\n", encoding="utf-8")
    (home / "latin.toml").write_bytes('about = "für"\n'.encode("latin-1"))
    (home / "pairs.tsv").write_text("eins zwei\tone two\ndrei\tthree\n" * 40, encoding="utf-8")
    (home / "one-column.tsv").write_text("eins\tone\nzwei\n", encoding="utf-8")
    (home / "empty.tsv").write_bytes(b"")
    (home / "latin.tsv").write_bytes("eins\tone\nfünf\tfive\n".encode("latin-1"))
    (home / "lines.txt").write_text("the cat\n", encoding="utf-8")
    (home / "short.de").write_text("eins\nzwei\n" * 40, encoding="utf-8")
    (home / "long.en").write_text("one\ntwo\n" * 40 + "three\n", encoding="utf-8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_home(folder)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(("command", "sentence"), MISTAKES, ids=[command for command, _ in MISTAKES])
def test_a_mistake_costs_one_sentence(
    command: str, sentence: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "argv", ["glassformer", *shlex.split(command)])
    before = everything(home)
    with pytest.raises(SystemExit) as ended:
        main()
    said = capfd.readouterr()
    assert ended.value.code == 2, (ended.value.code, said.err)
    assert said.out == "" and said.err.count("\n") == 1 and said.err.startswith("glassformer: "), said
    assert sentence in said.err
    assert everything(home) == before


def test_a_ctrl_c_while_a_class_is_made_is_no_defect(capsys: pytest.CaptureFixture[str]) -> None:
    """Python 3.11 makes a RuntimeError of it, in the midst of an import. Caught: exit code 70 and a trace in a file."""
    with pytest.raises(RuntimeError) as wrapped:
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()
    assert tell(wrapped.value) == 130 and capsys.readouterr().err == ""
