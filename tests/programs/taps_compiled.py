"""What the compiler gets of models with and without their taps, as JSON; here no shape is checked on the way."""

import json

from tests.laws.test_taps import compiled_with_and_without_taps

print(json.dumps(compiled_with_and_without_taps()))
