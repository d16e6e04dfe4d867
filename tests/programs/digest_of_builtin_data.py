"""One number for some of all built-in data: the same in every process."""

from tests.builtin_sets import digest_of_all

print(digest_of_all())
