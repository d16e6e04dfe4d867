"""From a recipe to a run: the wiring of data, model, trainer, validation and files. `train` starts one, `resume` goes on
with one.

What the trainer does not know is decided here: where batches come from, what "better" means, when to save and what a run
folder holds at the end. The same settings and seed give the same run, and a run that was stopped anywhere and resumed is
the run that was never stopped.
"""

from glassformer.runs.launch import resume, train
from glassformer.runs.session import Session
from glassformer.runs.setup import make_session, pick_device
from glassformer.runs.stop import STOPPED, Stopped

__all__ = ["STOPPED", "Session", "Stopped", "make_session", "pick_device", "resume", "train"]
