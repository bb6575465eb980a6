"""Stores over bytes: key schemas, value formats, expiry, the changelog layer, LMDB."""
