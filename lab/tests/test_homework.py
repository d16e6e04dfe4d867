"""`glassformer homework`: the right answer passes, each wrong one is told what is wrong, and a hole is a hole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from glassformer_lab.audit.making import load_object
from glassformer_lab.homework import EXERCISES, check, listing
from glassformer_lab.homework.checking import CASES, NAMES, problem_of
from glassformer_lab.homework.wrong import WRONG as WRONG_ONES
from tests.commands import call

RIGHT = {
    "softmax": "e = (scores - scores.amax(-1, keepdim=True)).exp()\n    return e / e.sum(-1, keepdim=True)",
    "attention": """scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v""",
    "mask": "return torch.ones(length, length, dtype=torch.bool).tril()",
    "padding": "return torch.arange(width) < lengths[:, None]",
    "positions": """angles = torch.arange(length)[:, None] / n ** (torch.arange(0, width, 2) / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)""",
    "norm": "return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True, unbiased=False) + eps).sqrt() * weight + bias",
    "heads": """texts = zip(self.c_attns, (query, key, value))
        q, k, v = (f(x).unflatten(-1, (self.n_head, -1)).transpose(1, 2) for f, x in texts)
        return self.c_proj(classic.attention(q, k, v, mask).transpose(1, 2).flatten(2))""",
    "encoder": "h = self.ln_1(x)\n        x = x + self.attn(h, h, h, src_mask)\n        return x + self.mlp(self.ln_2(x))",
    "decoder": """h = self.ln_1(x)
        x = x + self.m_attn(h, h, h)
        x = x + self.attn(self.ln_2(x), enc_out, enc_out, src_mask)
        return x + self.mlp(self.ln_3(x))""",
    "translator": """optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch in batches:
        _, loss = model(*batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model""",
}  # fmt: skip
AFTER_NORM = "x = self.ln_1(x)\n        x = x + self.attn(x, x, x, src_mask)\n        return x + self.mlp(self.ln_2(x))"
BY_QUERY = RIGHT["heads"].replace("unflatten(-1, (self.n_head, -1))", "view(2, query.size(1), self.n_head, -1)")
SIDE_BY_SIDE = RIGHT["positions"].replace("torch.stack((", "torch.cat((").replace(".flatten(1)", "")
NO_RESIDUAL = RIGHT["encoder"].replace("x + self.attn", "self.attn").replace("x + self.mlp", "self.mlp")
FIRST_AFTER_NORM = RIGHT["decoder"].replace("h = self.ln_1(x)", "h = x = self.ln_1(x)")
NOTHING_LEARNED = """for p in model.parameters():
        p.data += 0.01
    return model"""
WRONG = [
    ("softmax", "return scores.exp() / scores.exp().sum(-1, keepdim=True)", "large numbers", "subtract the largest"),
    ("softmax", "e = scores.exp()\n    return e / e.sum(0)", "two rows", "runs over the wrong axis"),
    ("attention", "return (q @ k.transpose(-2, -1)).softmax(-1) @ v", "two queries", "no root of the head's size"),
    ("attention", RIGHT["attention"].replace("softmax(-1)", "softmax(-2)"), "two queries", "runs over the wrong axis"),
    ("attention", RIGHT["attention"].replace("~mask", "mask"), "with a mask", "the wrong way round"),
    ("attention", RIGHT["attention"].replace("-torch.inf", "0"), "with a mask", "a score like any other"),
    ("mask", "return torch.ones(length, length).tril()", "1 positions", "it should be torch.bool"),
    ("mask", "return torch.ones(length, length, dtype=torch.bool).triu()", "4 positions", "upper triangle"),
    ("padding", "return torch.arange(width) <= lengths[:, None]", "lengths 3", "one place too many"),
    ("positions", RIGHT["positions"].replace("n **", "10000 **"), "n = 100", "n is left out"),
    ("positions", SIDE_BY_SIDE, "n = 100", "side by side"),
    ("norm", RIGHT["norm"].replace(", unbiased=False", ""), "two sentences", "divided by C - 1"),
    ("norm", RIGHT["norm"].replace("-1, keepdim", "1, keepdim"), "two sentences", "of the wrong axis"),
    ("norm", RIGHT["norm"].replace(" + eps", ""), "eps counts", "eps is left out"),
    ("heads", "return self.c_proj(classic.attention(query, key, value, mask))", "self-attention", "not projected"),
    ("heads", RIGHT["heads"].replace(".transpose(1, 2).flatten(2)", ".reshape(query.shape)"), "self-attention", "transpose back"),
    ("heads", BY_QUERY, "another length", "cut by the query's length"),
    ("encoder", AFTER_NORM, "one text", "the residual is after the norm"),
    ("encoder", NO_RESIDUAL, "one text", "no residual"),
    ("decoder", RIGHT["decoder"].replace(", src_mask)", ")"), "with padding", "padding of the source is read"),
    ("decoder", FIRST_AFTER_NORM, "a target", "the residual is after the norm"),
    ("translator", RIGHT["translator"].replace("        optimizer.step()\n", ""), "80%", "no weight has moved"),
    ("translator", NOTHING_LEARNED, "80%", "of 32 numbers are right"),
]  # fmt: skip
LIBRARY = [
    ("softmax", "return scores.softmax(-1)"),
    ("attention", "return classic.attention(q, k, v, mask)"),
    ("mask", "return classic.causal_mask(length)"),
    ("norm", "return F.layer_norm(x, x.shape[-1:], weight, bias, eps)"),
    ("encoder", "return super().forward(x, src_mask)"),
]


def filled(name: str, answer: str) -> str:
    return listing([name], "x.py").replace("raise NotImplementedError", answer)


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "translator")) for n in EXERCISES])
def test_the_right_answer_passes_and_a_hole_does_not(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"hw_{name}.py"
    file.write_text(listing([name], "x.py"), encoding="utf-8")
    assert [str(problem) for _, _, problem in check(file)] == ["the hole is still there"]
    file.write_text(filled(name, RIGHT[name]), encoding="utf-8")
    results = check(file)
    assert results and all(problem is None for _, _, problem in results), results
    assert EXERCISES[name]["hint"] in file.read_text("utf-8") and EXERCISES[name]["zh"] in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "answer", "case", "mistake"),
    [pytest.param(*w, marks=[pytest.mark.slow] * (w[0] == "translator")) for w in WRONG],
)
def test_a_wrong_answer_is_told_what_is_wrong(name: str, answer: str, case: str, mistake: str, tmp_path: Path) -> None:
    """Broken variant: only the first number that differs."""
    file = tmp_path / "hw.py"
    file.write_text(filled(name, answer), encoding="utf-8")
    *_before, (_, shown, problem) = check(file)
    assert case in shown and problem is not None and mistake in problem, (shown, problem)


@pytest.mark.parametrize(("name", "answer"), LIBRARY)
def test_the_librarys_own_function_is_no_answer(name: str, answer: str, tmp_path: Path) -> None:
    """Broken variant: `return classic.attention(...)` is right."""
    file = tmp_path / "hw.py"
    file.write_text(filled(name, answer), encoding="utf-8")
    *before, (_, _shown, problem) = check(file)
    assert all(one is None for _, _, one in before) and "the library's own" in str(problem)


def test_every_wrong_answer_that_is_known_is_wrong(tmp_path: Path) -> None:
    """And is no other's. Broken variant: a wrong function that gives the right numbers, and is never found."""
    for name, wrongs in WRONG_ONES.items():
        file = tmp_path / f"{name}.py"
        file.write_text(filled(name, RIGHT[name]), encoding="utf-8")
        torch.manual_seed(1)
        cases = list(CASES[name](load_object(f"{file}:{NAMES.get(name, name)}")))
        for number, (mistake, _function) in enumerate(wrongs):
            problems = [problem_of(replace(one, answer=one.wrong[number][1])) for one in cases]
            assert any(mistake in str(problem) for problem in problems), (name, mistake, problems)


ENDINGS = {
    "sys.exit(0)": (1, "it raises SystemExit: 0"),
    "os._exit(0)": (2, "ended the process (exit code 0)"),
    "raise KeyboardInterrupt": (2, "KeyboardInterrupt"),
    "while True: pass": (2, "had not come to its end after 8 seconds"),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_ends_its_process_is_not_right(ending: str, tmp_path: Path) -> None:
    """Broken variant: exit code 0, and nothing printed, is what a grader's script reads as right."""
    (tmp_path / "hw.py").write_text(f"import os, sys\ndef softmax(scores):\n    {ending}\n", encoding="utf-8")
    done = call("homework", "--check", "hw.py", *(["--seconds", "8"] if "while" in ending else []), cwd=tmp_path)
    code, sentence = ENDINGS[ending]
    assert done.returncode == code and sentence in done.stdout + done.stderr and "Traceback" not in done.stderr, done


@pytest.mark.slow
def test_the_verb(tmp_path: Path) -> None:
    listed = call("homework", cwd=tmp_path)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXERCISES) and len(EXERCISES) == 10
    assert call("homework", "softmax", "mask", cwd=tmp_path).returncode == 0
    file = tmp_path / "softmax.py"
    done = call("homework", "--check", "softmax.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout.count("the hole is still there") == 2
    file.write_text(filled("softmax", RIGHT["softmax"]), encoding="utf-8")
    assert call("homework", "--check", "softmax.py", cwd=tmp_path).returncode == 0
    before = file.read_bytes()
    for words, sentence in (
        (["softmax"], "is there already"),
        (["softmx"], "there is no exercise 'softmx' (did you mean 'softmax'?)"),
        (["--check", "none.py"], "there is no file none.py"),
        (["mask", "--out", "no/where.py"], "cannot be written"),
    ):
        done = call("homework", *words, cwd=tmp_path)
        assert done.returncode == 2 and sentence in done.stderr, done
    assert file.read_bytes() == before
    file.write_text("def softmax(scores:\n", encoding="utf-8")
    done = call("homework", "--check", "softmax.py", cwd=tmp_path)
    assert done.returncode == 2 and "cannot be imported: SyntaxError" in done.stderr
    file.write_text("class EncoderLayer:\n    pass\n", encoding="utf-8")
    done = call("homework", "--check", "softmax.py", cwd=tmp_path)
    assert done.returncode == 1 and "it raises TypeError" in done.stdout
