"""How the outside reaches the scheduler: events, the clock, gRPC. They translate and call."""
