"""`glassformer homework`: the right answer passes, each wrong one is told what is wrong, and a hole is a hole."""

from __future__ import annotations

from pathlib import Path

import pytest

from glassformer.lab.homework import EXERCISES, check, listing
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
WRONG = [
    ("softmax", "return scores.exp() / scores.exp().sum(-1, keepdim=True)", "large numbers"),
    ("softmax", "return scores.softmax(0)", "two rows"),
    ("attention", "return (q @ k.transpose(-2, -1)).softmax(-1) @ v", "two queries"),
    ("attention", RIGHT["attention"].replace("~mask", "mask"), "with a mask"),
    ("mask", "return torch.ones(length, length).tril()", "1 positions"),
    ("mask", "return torch.ones(length, length, dtype=torch.bool).triu()", "4 positions"),
    ("padding", "return torch.arange(width) <= lengths[:, None]", "lengths 3"),
    ("positions", RIGHT["positions"].replace("n **", "10000 **"), "n = 100"),
    ("positions", RIGHT["positions"].replace("torch.stack((", "torch.cat((").replace(".flatten(1)", ""), "n = 100"),
    ("norm", RIGHT["norm"].replace(", unbiased=False", ""), "two sentences"),
    ("norm", RIGHT["norm"].replace(" + eps", ""), "eps counts"),
    ("heads", "return self.c_proj(classic.attention(query, key, value, mask))", "self-attention"),
    ("heads", BY_QUERY, "another length"),
    ("encoder", AFTER_NORM, "one text"),
    ("decoder", RIGHT["decoder"].replace(", src_mask)", ")"), "with padding"),
    ("translator", RIGHT["translator"].replace("        optimizer.step()\n", ""), "80%"),
]  # fmt: skip


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
    ("name", "answer", "case"), [pytest.param(*w, marks=[pytest.mark.slow] * (w[0] == "translator")) for w in WRONG]
)
def test_a_wrong_answer_is_told_what_is_wrong(name: str, answer: str, case: str, tmp_path: Path) -> None:
    file = tmp_path / "hw.py"
    file.write_text(filled(name, answer), encoding="utf-8")
    *_before, (_, shown, problem) = check(file)
    assert case in shown and problem, (shown, problem)


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
