"""The data pool as tables: every episode of the runs of a stack, its turns, tokens, rewards, advantages and batches.

It reads the stores and blobs themselves, so nothing has to be up. It writes nothing but exports, and frees nothing.
    places.py    where stores and blobs are
    index.py     one row an episode, folded from the scheduler's queue and the trainer's reports (pure)
    reading.py   the index and the trajectories from stores and blobs
    tables.py    both as Arrow tables
    query.py     SQL over them (DuckDB); only the tables that a query names are read
    export.py    Parquet, chat JSONL, recorded episodes
    lines.py     a recorded episode as a line of JSON (pure)
    importing.py recorded episodes into a run
    pruning.py   what pruning would free at most, and what was freed
"""
