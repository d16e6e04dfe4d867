"""A better translator from what there is: a small student of a run, and steps that are kept where held-out pairs say so."""
