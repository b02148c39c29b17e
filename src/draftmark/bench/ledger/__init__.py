"""Which tokens of a corpus were ever sent to a server: a file that only grows.

A prompt that a server has seen is answered from its cache, so a window of a corpus is used once.
`Ledger` hands windows out; `audit` proves from the file alone that none was handed out twice.
"""
