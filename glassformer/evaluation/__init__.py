"""How good a model is: teacher-forced and generated scores, metrics, and whether a difference is more than luck."""
