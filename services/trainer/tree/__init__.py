"""Prefix trees: samples that share tokens become one forest, and each shared token is computed once, exactly.

Read in this order: forest.py (samples -> forest), plan.py (forest -> attention calls), attention.py (the calls, with
their backward), scoring.py (a causal LM's log-probabilities by sample), cost.py (what merging can gain at most).
"""
