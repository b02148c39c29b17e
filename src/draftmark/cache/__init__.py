"""Bookkeeping of cached state on the host: which pages and slots exist, and who holds them."""
