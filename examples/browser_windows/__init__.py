"""Browser windows: the actions of browsers in hopping windows."""
