"""`glassformer look`: what goes on inside a model while it reads a text and answers."""

from glassformer.studies.look.checkpoints import look_across
from glassformer.studies.look.inside import Inside, look_inside
from glassformer.studies.look.report import write_report

__all__ = ["Inside", "look_across", "look_inside", "write_report"]
