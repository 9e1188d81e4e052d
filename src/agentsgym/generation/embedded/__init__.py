"""The engine over a Hugging Face model in this process."""
