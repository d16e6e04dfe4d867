"""Reading and writing files that somebody depends on: whole or not at all, checked, and only what is ours."""
