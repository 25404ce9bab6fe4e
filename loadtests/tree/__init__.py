"""Prefix-tree training against per-sample training: time, exactness and memory, in one run.

    python -m loadtests.tree --json [--only WORD] [--rounds N]

Read workloads.py (the data), model.py (what is trained), steps.py (ours and the baselines), timing.py (pairs),
checks.py (exactness, memory), measure.py (a workload's rows), __main__.py (the run).
"""
