"""What several services agree on, as pure functions and values: no IO, no clock, no randomness, no service's own rules.

    trajectory.py       columns of a sealed trajectory, its branches, its Arrow bytes
    run_spec.py         defaults of a run file, and every problem of one; two sections of many rules stand apart:
    scheduling_spec.py  how far generation may run ahead, what is taken next, what is kept
    training_spec.py    loss, optimiser, guards, adapters, draft head
    bounds.py           what is said of a number out of bounds
    outcomes.py         the failure contract: which class is trained, counted, rewarded
    policy_folder.py    what stands in a policy's folder, by name
    references.py       which blobs nobody names any more
    rewards.py          reward terms, their weights and order, reward-to-go and baselines
It refuses to know any service's store, topic handling or wiring.
"""
