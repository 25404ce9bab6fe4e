"""Names of KV blocks: a hash chain over (policy digest, block of token ids). Pure.

A block's name covers everything before it, so equal names mean equal KV; the digest at the root keeps KV of one set
of weights apart from any other's.
"""

from hashlib import blake2b

TOKEN_BYTES = 4
_NAME_BYTES = 16


def root(policy_digest: str) -> bytes:
    """Where the chains of a policy begin."""
    return blake2b(policy_digest.encode(), digest_size=_NAME_BYTES).digest()


def extend(parent: bytes, block: bytes) -> bytes:
    """Name of the block with these ids (uint32, little endian) after `parent`."""
    return blake2b(block, digest_size=_NAME_BYTES, key=parent).digest()


def chain(policy_digest: str, token_ids: bytes, block_tokens: int) -> list[bytes]:
    """Names of a prompt's full blocks, first to last. The last token never counts: an engine computes it anyway."""
    if block_tokens <= 0:
        return []
    size = block_tokens * TOKEN_BYTES
    names: list[bytes] = []
    name = root(policy_digest)
    for start in range(0, len(token_ids) - TOKEN_BYTES - size + 1, size):
        name = extend(name, token_ids[start : start + size])
        names.append(name)
    return names
