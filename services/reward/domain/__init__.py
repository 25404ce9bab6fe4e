"""Pure decisions of the reward service: when a case is complete, what its turns look like, what each rule says."""
