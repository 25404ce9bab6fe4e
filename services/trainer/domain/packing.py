"""Rows packed into micro-batches that pad little, in two halves whose gradients can be compared.

It refuses to split a row: one longer than the budget gets a micro-batch of its own.
"""

from collections.abc import Sequence

from services.trainer.domain.rows import Row


def halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Two halves of the batch: by group, so that what a group shares is computed once; by episode where there is one.

    The largest group first, each to the half with fewer tokens so far; rows keep their order.
    """
    keys = [row.group_id for row in rows]
    if len(set(keys)) < 2:
        keys = [row.episode_id for row in rows]
    sizes: dict[str, int] = {}
    for key, row in zip(keys, rows, strict=True):
        sizes[key] = sizes.get(key, 0) + row.trained_tokens
    first, totals = set[str](), [0, 0]
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        half = int(totals[1] < totals[0])
        totals[half] += sizes[key]
        if half == 0:
            first.add(key)
    return (
        [row for key, row in zip(keys, rows, strict=True) if key in first],
        [row for key, row in zip(keys, rows, strict=True) if key not in first],
    )


def micro_batches(rows: Sequence[Row], budget_tokens: int) -> list[list[Row]]:
    """Rows of like length together, each micro-batch at most `budget_tokens` with padding counted."""
    packed: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -row.length):
        # Longest first: the first row of a micro-batch is its width.
        if packed and packed[-1][0].length * (len(packed[-1]) + 1) <= budget_tokens:
            packed[-1].append(row)
        else:
            packed.append([row])
    return packed
