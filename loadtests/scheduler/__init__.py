"""The scheduler measured: policies and windows simulated with its own decision code, and how fast that code is."""
