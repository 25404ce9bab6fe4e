"""Pure decisions of the scheduler: the same code runs in the service, in a replay and in a simulator."""
