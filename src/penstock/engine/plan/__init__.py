"""Planning: what the next batch does, from the committed state and the content of the log.

    planner.py        `Planner`: makes a plan, and advances after its commit
    ranges.py         the offsets that each task reads
    batch_size.py     the size of a batch, learned from the duration of earlier ones
    start_offsets.py  where reading starts: committed offsets and reset policies
    task_records.py   the committed state of each task, as stored in the log
    batch_plan.py     `BatchPlan`: plain data that is sent to the workers
"""
