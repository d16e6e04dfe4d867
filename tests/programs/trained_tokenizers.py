"""The checksum of a tokenizer of each kind, trained on the same texts."""

import hashlib
import random

from glassformer.text.tokenizer import Tokenizer

words = random.Random(1)
letters = "abcdefghij"
texts = [" ".join("".join(words.choices(letters, k=words.randrange(1, 9))) for _ in range(30)) for _ in range(40)]
for kind in ("char", "word", "bpe", "unigram"):
    print(hashlib.sha256(Tokenizer.train(kind, texts, 420).library.to_str().encode()).hexdigest())
