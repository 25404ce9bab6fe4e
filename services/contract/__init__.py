"""What several services agree on, as pure functions and values: no IO, no clock, no randomness, no service's own rules.

    trajectory.py  columns of a sealed trajectory, its branches, its Arrow bytes
    run_spec.py    defaults of a run file, and every problem of one
    outcomes.py    the failure contract: which class is trained, counted, rewarded
    references.py  which blobs nobody names any more
    rewards.py     reward terms, their weights and order, reward-to-go and baselines
It refuses to know any service's store, topic handling or wiring.
"""
