"""One outside thing each: the environments' verifiers."""
