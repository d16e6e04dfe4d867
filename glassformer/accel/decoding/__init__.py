"""Decoding made fast on the model's own cache: modules that take the places of known ones in a copy (block.py), written
against a table of operations (operations.py by torch, triton.py by kernels)."""
