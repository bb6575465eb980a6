"""One sub-topology over one partition, record by record: records in, a result out, no I/O."""
