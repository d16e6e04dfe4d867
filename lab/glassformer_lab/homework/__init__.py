"""Homework that grades itself: parts of `glassformer.classic` with a hole, and the laws that what is put there must hold."""

from glassformer_lab.homework.checking import EXERCISES, check, listing, report

__all__ = ["EXERCISES", "check", "listing", "report"]
