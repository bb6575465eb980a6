"""`Consumer`.

    client.py      Consumer
    settings.py    its settings and their defaults
    fetcher.py     fetches and prefetches records
    positions.py   seek, pause, and lookups of offsets
    membership.py  membership in a group, with a heartbeat thread
    commits.py     selects and commits offsets
"""
