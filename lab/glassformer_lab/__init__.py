"""Experiments with Glassformer: claims, sweeps, reproductions, costs, audits, homework, a museum of mistakes."""
