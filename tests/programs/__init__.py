"""Programs that tests run in processes of their own: what cannot be done while signatures are checked, or needs a blocker."""
