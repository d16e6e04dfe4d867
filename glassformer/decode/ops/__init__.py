"""The table of operations that the decoder is written against: torch.py is the reference, the others replace entries."""
