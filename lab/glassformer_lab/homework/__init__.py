"""Homework that grades itself: parts of `glassformer.classic` with a hole, and the laws that what is put there must hold."""

from glassformer_lab.homework.checking import check, report
from glassformer_lab.homework.exercises import EXERCISES, listing

__all__ = ["EXERCISES", "check", "listing", "report"]
