"""Where exported models run: each runtime behind the same few calls, so that one report compares any of them with ours."""

from __future__ import annotations

from glassformer.interop.runtimes.cases import Case, Runtime, make_cases
from glassformer.interop.runtimes.ours import OurRuntime

__all__ = ["Case", "OurRuntime", "Runtime", "make_cases"]
