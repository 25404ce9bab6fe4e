"""Ranks: one learner spread over several processes (torch.distributed, FSDP2). One process is the default.

Rank 0 is the service. It tells the others what to do; each does it on its share of the rows and of the weights.
Read in this order: place.py (which rank this process is), shares.py (rows by rank), alone.py and group.py (what ranks
do together), sharding.py (weights in parts), leader.py and follower.py (commands), launch.py (starting followers).
"""
