"""The workloads of `bench/peers.py` with Spark Structured Streaming."""

import os

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = (
    "orderId long, locationId string, finalAmount double, orderType string, orderedDateTime string"
)


def w1(records: DataFrame) -> DataFrame:
    return (
        records.select("key", from_json(col("value").cast("string"), SCHEMA).alias("order"))
        .where("order.orderType = 'GENERAL'")
        .selectExpr("key", "cast(order.finalAmount as string) as value")
    )


def w2(records: DataFrame) -> DataFrame:
    return records.groupBy("key").count().selectExpr("key", "cast(count as string) as value")


def main() -> None:
    spark = (
        SparkSession.builder.master("local[2]").appName(os.environ["PEER_APPLICATION"])
        .config("spark.jars.packages",
                f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}")
        .config("spark.jars.repositories", os.environ["PEER_MAVEN_REPOSITORY"])
        .config("spark.jars.ivy", os.environ["PEER_IVY"])
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        # The default is 200 tasks in each micro-batch.
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", os.environ["PEER_BROKER"])
        .option("subscribe", os.environ["PEER_INPUT"])
        .option("startingOffsets", "earliest")
        .load()
    )
    workload = {"W1": w1, "W2": w2}[os.environ["PEER_WORKLOAD"]]
    (
        workload(records).writeStream.format("kafka").outputMode("update")
        .option("kafka.bootstrap.servers", os.environ["PEER_BROKER"])
        .option("topic", os.environ["PEER_OUTPUT"])
        .option("checkpointLocation", os.environ["PEER_FOLDER"])
        .start().awaitTermination()
    )


if __name__ == "__main__":
    main()
