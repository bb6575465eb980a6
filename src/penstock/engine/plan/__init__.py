"""Planning a batch: offsets, task records, batch size, and the plan itself."""
