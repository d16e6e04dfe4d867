"""Every triple that the phrasebook's grammar writes, a line each."""

from tools.phrasebook import FAMILIES
from tools.phrasebook.book import sentences

for family in FAMILIES:
    for each in sentences(family):
        print(each.en, each.zh, each.de, each.split, family.name, *map("=".join, each.fillers), sep="\t")
