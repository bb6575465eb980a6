"""The workloads of `bench/peers.py` with PyFlink. The arguments are the jars of its connector."""

import json
import os
import sys

from pyflink.common import Configuration, Row, Types
from pyflink.common.serialization import RowFieldExtractorSchema
from pyflink.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

BROKER = os.environ["PEER_BROKER"]
EXACTLY_ONCE = os.environ["PEER_GUARANTEE"] == "exactly once"
MESSAGE = Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE()), Types.PRIMITIVE_ARRAY(Types.BYTE())])
# KafkaSource of the DataStream API reads values only. A table has the keys, too.
ORDERS = f"""
    CREATE TABLE orders (
        customer STRING, orderId BIGINT, locationId STRING, finalAmount DOUBLE, orderType STRING,
        orderedDateTime STRING
    ) WITH (
        'connector' = 'kafka', 'topic' = '{os.environ["PEER_INPUT"]}',
        'properties.bootstrap.servers' = '{BROKER}',
        'properties.group.id' = '{os.environ["PEER_APPLICATION"]}',
        'scan.startup.mode' = 'earliest-offset',
        'key.format' = 'raw', 'key.fields' = 'customer',
        'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY'
    )
"""


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, order: Row, context: KeyedProcessFunction.Context):
        total = (self._total.value() or 0) + 1
        self._total.update(total)
        yield message(order["customer"], total)


def message(key: str, value: object) -> Row:
    return Row(key.encode(), json.dumps(value).encode())


def w1(orders: DataStream) -> DataStream:
    return orders.filter(lambda order: order["orderType"] == "GENERAL").map(
        lambda order: message(order["customer"], order["finalAmount"]), output_type=MESSAGE
    )


def w2(orders: DataStream) -> DataStream:
    keyed = orders.key_by(lambda order: order["customer"], key_type=Types.STRING())
    return keyed.process(Count(), output_type=MESSAGE)


def sink() -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder().set_topic(os.environ["PEER_OUTPUT"])
        .set_key_serialization_schema(RowFieldExtractorSchema(0))
        .set_value_serialization_schema(RowFieldExtractorSchema(1))
        .build()
    )
    builder = (
        KafkaSink.builder().set_bootstrap_servers(BROKER).set_record_serializer(serializer)
    )
    if not EXACTLY_ONCE:
        return builder.set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE).build()
    return (
        builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix(os.environ["PEER_APPLICATION"])
        # The default is above the maximum of the broker.
        .set_property("transaction.timeout.ms", "900000")
        .build()
    )


def main() -> None:
    # As on a cluster. A local job would run the functions in threads of this process.
    os.environ["_python_worker_execution_mode"] = "process"  # noqa: SIM112
    environment = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({
        "jobmanager.bind-host": "localhost", "taskmanager.bind-host": "localhost",
        "rest.bind-address": "localhost",
    }))
    environment.set_parallelism(2)
    # Outputs of a transaction are visible after the checkpoint.
    environment.enable_checkpointing(1_000 if EXACTLY_ONCE else 10_000)
    environment.set_python_executable(sys.executable)
    environment.add_jars(*(f"file://{jar}" for jar in sys.argv[1:]))
    tables = StreamTableEnvironment.create(environment)
    tables.execute_sql(ORDERS)
    orders = tables.to_data_stream(tables.from_path("orders"))
    workload = {"W1": w1, "W2": w2}[os.environ["PEER_WORKLOAD"]]
    workload(orders).sink_to(sink())
    environment.execute(os.environ["PEER_APPLICATION"])


if __name__ == "__main__":
    main()
