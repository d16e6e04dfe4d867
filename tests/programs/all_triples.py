"""Every triple of the phrasebook, a line each."""

from glassformer.data.builtin.phrases import split_of, triples

for triple in triples():
    print(*triple[:3], split_of(triple), triple.key.family, *map("=".join, triple.key.fillers), sep="\t")
