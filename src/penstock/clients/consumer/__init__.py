"""`Consumer`: fetching, positions, group membership and commits."""
