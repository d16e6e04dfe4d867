"""What makes it fast and is not the explanation. Everything works without it, and the same tests pass."""
