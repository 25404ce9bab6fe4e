"""Rows packed into micro-batches that pad little, in two halves whose gradients can be compared.

It refuses to split a row: one longer than the budget gets a micro-batch of its own.
"""

from collections.abc import Sequence

from services.trainer.domain.rows import Row


def halves(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Two halves of the batch by episode, alternating, so that both hold members of every group."""
    order = {episode_id: index for index, episode_id in enumerate(dict.fromkeys(row.episode_id for row in rows))}
    return (
        [row for row in rows if order[row.episode_id] % 2 == 0],
        [row for row in rows if order[row.episode_id] % 2 == 1],
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
