"""In and out: models come from, and go to, where people already run them. Every way is checked by a parity report."""
