"""From the plan of the DSL to the topology that runs.

    plan, plan_nodes     the plan: a graph of DSL steps
    rules                rewrite rules: plan in, plan out
    old_values           which tables send old values and which are materialized
    lowering             turns the plan into a Topology
    topology, nodes      sources, processors, sinks and stores; the Processor API
    store_specs          stores before the configuration is known
    join_store_specs     the same for the stores of a join of two streams
    default_serdes       default and inferred serdes, and operators that need them
    serde_check          whether all serdes are known
    processor_wrapper    the processor_wrapper setting
    naming               generated names
    describe, java_order Kafka's text of a topology
    partitions           partition counts of internal topics, task counts
    offset_reset         AutoOffsetReset
    compatibility        whether an application can keep its state after a change
"""
