"""The engine: runs a topology on a log in batches: plan, compute, commit, advance.

    instance.py           the parts of a running instance; `Streams` is its public face
    lifecycle.py          states and transitions
    stream_thread.py      acquires the lease and runs batches
    lease.py              one instance runs, the others are standbys
    catch_up.py           waits until the current input is processed
    exception_handler.py  responses to a failed batch
    loop.py               `Engine`: one batch from plan to advance
    commit.py             all outcomes of a batch become one transaction
    batch_report.py       the result of a batch
    compute.py            `Compute`: runs the tasks of a batch
    compute_provider.py   starts a `Compute`: Spark, inline, or the caller's
    inline.py             a `Compute` in this process
    housekeeping.py       purges and cleans the log between batches
    reset.py              resets an application
    stdout.py             lines of the application on standard output
    failpoints.py         the places at which crash tests kill a process
    layout/               execution graph, internal topics, upgrade check
    plan/                 planning a batch
    worker/               runs the tasks of a lane
    packaging/            the application and its failures as bytes
    spark/                a batch as a Spark job; the only package that imports pyspark
    standby/              warm-up and replicas of standbys
    observe/              metrics, task metadata, restore progress, printed lines
"""
