"""`glassformer reproduce`: a published number, reached again or not, with one command."""
