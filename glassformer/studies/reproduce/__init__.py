"""`glassformer reproduce`: a published number, reached again or not, with one command."""

from glassformer.studies.reproduce.metrics import random_batches_loss, whole_loss
from glassformer.studies.reproduce.report import Outcome, Report
from glassformer.studies.reproduce.reproduction import reproduce
from glassformer.studies.reproduce.table import REPRODUCTIONS, Reproduction, reproduction
from glassformer.studies.reproduce.times import Times, times_of

__all__ = [
    "REPRODUCTIONS",
    "Outcome",
    "Report",
    "Reproduction",
    "Times",
    "random_batches_loss",
    "reproduce",
    "reproduction",
    "times_of",
    "whole_loss",
]
