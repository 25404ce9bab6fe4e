"""Does a draft head keep up with a policy that moves? `python -m loadtests.draft_head --json`; docs/draft-head.md.

policy.py (sampling and moving the policy by RL), measure.py (exact acceptance), engine.py (acceptance in a real vLLM),
study.py (frozen head against co-trained head). It needs no service.
"""
