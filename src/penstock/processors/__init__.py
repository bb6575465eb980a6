"""What each operator does, a file a family; `api` is what users write processors with."""
