"""The DSL: streams, tables, groupings and joins. Each method checks its arguments and adds a step.

    builder            StreamsBuilder: the entry point
    stream             KStream, with stream_joins
    table              KTable and GlobalKTable, with table_joins and foreign_key
    grouped            KGroupedStream and KGroupedTable
    windowed           aggregations in windows
    cogrouped          aggregations of several streams into one table
    branched           split() and its branches
    options            Materialized, Suppressed, Printed and other option objects
    plan_builder       the plan that all of them share
    checks, functions  checks of arguments and of the user's functions
"""
