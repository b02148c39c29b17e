"""Measures any OpenAI-compatible server over HTTP. Nothing of the engine is imported here: what is
measured is what a client sees, and the same for every server."""
