"""One sub-topology over one partition, record by record; pure: records in, a result out."""
