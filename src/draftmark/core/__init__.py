"""What everything may speak about: configuration, requests, plans, messages, errors. No torch."""
