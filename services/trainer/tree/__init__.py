"""Prefix trees: samples that share tokens become one forest, and each shared token is computed once, exactly.

Read in this order: forest.py (samples -> forest), plan.py (forest -> attention calls), attention.py (the calls, with
their backward), tiles.py and tile_attention.py (small trees in stacked tiles instead), flex.py (all of it on a GPU),
scoring.py (a causal LM on a forest), head.py (its log-probabilities), partition.py, path_attention.py and passes.py
(trees beyond memory), cost.py and choice.py (whether merging gains).
"""
