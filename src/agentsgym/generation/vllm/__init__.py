"""vLLM servers over HTTP."""
