"""Pure decisions of the trainer: who is trained with which advantage, how rows are packed, what a step may not do."""
