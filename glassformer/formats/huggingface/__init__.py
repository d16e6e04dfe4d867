"""Hugging Face's transformers: its folders, read and written."""
