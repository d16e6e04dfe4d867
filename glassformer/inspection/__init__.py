"""`glassformer look`: what goes on inside a model while it reads a text and answers."""

from glassformer.inspection.inspection import Inspection, look_across, look_inside
from glassformer.inspection.report import write_report

__all__ = ["Inspection", "look_across", "look_inside", "write_report"]
