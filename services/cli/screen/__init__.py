"""A run on the terminal: what is known of it now, as a live screen or as plain lines."""
