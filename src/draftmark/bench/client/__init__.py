"""Sends the requests of a run and notes when what came back: own HTTP, in processes of its own."""
