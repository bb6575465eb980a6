"""The loop that carries records to tasks: plan, compute, commit, advance.

    shape.py            the stages, tasks and topics of an application on a log
    plan.py             what one batch is to do; plain data that travels to the workers
    planner.py          makes plans from what is committed
    task_records.py     what each task was left with, kept in the log
    bundle.py           the application as every worker gets it, and its lanes
    worker.py           runs the tasks of one lane of one stage, wherever it is called
    task_run.py         one task in one batch: its rows, its records, its outcome
    own_changes.py      what a run wrote to its changelogs, kept on its host for the next one
    blocks.py           records on their way from one stage to the next
    outcome.py          what a task answers, as bytes
    commit.py           all outcomes of a batch become one transaction
    loop.py             a batch from beginning to end, on one screen
    spark/              the only place that knows Spark: a batch is one job
"""
