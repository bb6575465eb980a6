import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/**
 * Reads a topic of strings and longs, such as the changelog of a count, into a table of Kafka
 * Streams, and prints its rows: key, value, timestamp.
 *
 *   ReadTable BOOTSTRAP TOPIC STATE-DIRECTORY
 */
final class ReadTable {
    private ReadTable() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "reader-of-" + arguments[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        properties.put("isolation.level", "read_committed");
        final StreamsBuilder builder = new StreamsBuilder();
        // A global table is filled before the application is RUNNING.
        builder.globalTable(
            arguments[1], Consumed.with(Serdes.String(), Serdes.Long()),
            Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("rows"));
        final CountDownLatch running = new CountDownLatch(1);
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties)) {
            streams.setStateListener((state, before) -> {
                if (state == KafkaStreams.State.RUNNING) {
                    running.countDown();
                }
            });
            streams.start();
            if (!running.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("The table was not filled in time.");
            }
            try (KeyValueIterator<String, ValueAndTimestamp<Long>> rows = streams.store(
                    StoreQueryParameters.fromNameAndType(
                        "rows",
                        QueryableStoreTypes.<String, Long>timestampedKeyValueStore())).all()) {
                rows.forEachRemaining(row -> System.out.printf(
                    "%s %d %d%n", row.key, row.value.value(), row.value.timestamp()));
            }
        }
    }
}
