"""Runs in a worker process: the tasks of a lane, one after the other, from plan to outcome.

A lane is a slot of a stage, one Spark task.

    worker           `Worker`: runs lanes, keeps the log and the replicas open between batches
    task_run         `TaskRun`: one task in one batch
    blocks           records that travel from task to task within a batch
    record_groups    written records as Arrow batches, grouped by destination
    outcome          `TaskOutcome`: the result of a task, encoded for the driver
    replica_pool     the stores of tasks, at the positions of the plan
    changelogs       reads changelogs for replicas
    changelog_cache  keeps the changes of the last batch on this host
    global_tables    the stores of global tables, at the offsets of the plan
    sink_topics      partition counts and record limits of output topics
    notices          notices for users about the host of a worker
    log_capture      captures the log lines of user code
    log_lines        `LogLine`, and how the driver emits captured lines
"""
