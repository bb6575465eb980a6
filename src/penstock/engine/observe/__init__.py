"""Status, metrics and metadata of an instance.

    status.py           implements `Streams.metrics`, `lag`, `metadata_for_local_threads` and `str`
    metrics.py          counters, rates and latencies under Kafka Streams' names
    sample_windows.py   the samples of the last minute, and their total
    lane_metrics.py     the times of lanes, and how they get their tasks
    lag_metrics.py      the unread records of source partitions
    standby_metrics.py  the updates of the stores of a standby
    prometheus.py       the metrics in Prometheus' text format
    otlp.py             sends metrics and traces to a collector of OpenTelemetry
    metadata.py         tasks: what they read, and their positions
    batch_observers.py  passes on the report of each committed batch
    restore.py          the progress of stores that are restored from their changelogs
    restore_metrics.py  the same as metrics of tasks
    restore_log.py      log lines about restored stores
    printer.py          the lines of `KStream.print`
"""
