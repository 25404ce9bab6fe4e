"""The model without a hub: makes a small Qwen3-style model and warms it up on demonstrations that it generates.

`forgerl model init OUT --seed S` calls `init_model`. It owns no topic and no store.
    tokenizer.py       byte-level BPE on the templates' phrases; chat_template.jinja
    architecture.py    the network: a Qwen3ForCausalLM of one million parameters
    made_up.py         corpora of names that exist nowhere, so that copying is learnt instead of a list
    demonstrations.py  conversations of mixed quality, from the environments themselves
    tokens.py          conversations to token ids, and which of them are the model's own
    warmup.py          the training loop
    episodes.py        plays held-out episodes in one process, to see what the warm-up left
    initialise.py      init_model: all of the above, and the directory that comes out
"""
