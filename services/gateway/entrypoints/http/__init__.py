"""The agents' LLM API: one file a dialect over one neutral core (`door.py`)."""
