"""One module a group of commands; each has `register(app)`. Imports of anything heavy stand inside the functions."""
