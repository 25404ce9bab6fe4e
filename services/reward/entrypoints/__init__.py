"""No door of its own: the broker calls application.Scoring.handle, and the kernel serves /healthz."""
