"""Environments: the tasks that policies are trained on, as plug-ins shared by client, rollout and reward.

Not a service: it owns no topic, no store and no process.
    interface.py   what an environment is: Task, Environment, ToolSpec, Sandbox, Verdict, and its errors
    registry.py    the built-in environments by name, and third parties' (entry points "forgerl.environments")
    split.py       how seeds and contents are divided between train and held-out
    reasoning.py   one turn, no tools: reasoning-gym's chain_sum, gcd and letter_counting
    tool.py        arithmetic with a sandboxed Python tool
    qa.py          questions on signatures, with a search tool over data/signatures.txt
    corpus.py      reads that file; build_corpus.py made it
A new environment is one file and one line in the registry. It refuses to do IO: effects are handed in.
"""
