"""Continuous execution: long-lived lanes that poll, process and commit their own transactions.

The driver holds the lease. It starts lanes, grants topology tasks to them, and supervises them. No
record passes through the driver.

    engine         `ContinuousEngine`: the driver's side, one round at a time
    lane_pool      starts, supervises and fences lanes; `lane_handle` is one of them
    lane_observer  receives the reports of lanes that are not commits
    assignment     which lane gets which task
    lane_starter   starts lanes in this process; `engine.spark.lanes` starts them in Spark
    lane           `Lane`: the loop of a lane, in any process
    lane_task      one task in a lane: its queues, its stores, its results
    lane_commit    the commit of a lane
    driver_link    the connection of a lane to its driver
    messages       what driver and lanes send each other
    control_server where the driver accepts lanes
    channel        an authenticated connection that carries the messages
"""
