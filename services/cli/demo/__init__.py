"""`forgerl demo`: the stack started, a model trained on it, evaluated before and after, and all of it stopped again."""
