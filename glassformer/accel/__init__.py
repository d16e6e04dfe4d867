"""What makes it fast and is not the explanation. Installed on a model from outside; without it everything works the same."""

from glassformer.accel.install import accelerate

__all__ = ["accelerate"]
