"""Which agents there are: a file and a line in `registry.py` each."""
