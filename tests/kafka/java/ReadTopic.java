import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/**
 * Reads topics with the deserializers of Kafka Streams and prints a line for each record.
 *
 *   ReadTopic BOOTSTRAP KIND TOPIC [KIND TOPIC ...]
 *
 * KIND: plain, time-windows, session-windows, or changelog-windows (a window store's changelog);
 * windows have two seconds, values are longs. A line has the topic, the partition, the partition
 * that Java's producer chooses, the key, the start and end of the window, the value, the timestamp.
 */
final class ReadTopic {
    private static final long WINDOW_MS = 2_000;

    private ReadTopic() {
    }

    public static void main(final String[] arguments) {
        final Properties properties = new Properties();
        properties.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        for (int at = 1; at < arguments.length; at += 2) {
            read(properties, arguments[at], arguments[at + 1]);
        }
    }

    private static void read(
        final Properties properties, final String kind, final String topic) {
        try (KafkaConsumer<Object, Long> consumer =
                 new KafkaConsumer<>(properties, keys(kind), new LongDeserializer())) {
            final List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(each -> new TopicPartition(topic, each.partition())).toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            final Map<TopicPartition, Long> left = new HashMap<>(consumer.endOffsets(partitions));
            while (!left.isEmpty()) {
                consumer.poll(Duration.ofMillis(100))
                    .forEach(record -> print(record, partitions.size()));
                left.entrySet().removeIf(end -> consumer.position(end.getKey()) >= end.getValue());
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static Deserializer<Object> keys(final String kind) {
        final Deserializer<?> made = switch (kind) {
            case "plain" -> new StringDeserializer();
            case "time-windows" ->
                WindowedSerdes.timeWindowedSerdeFrom(String.class, WINDOW_MS).deserializer();
            case "session-windows" ->
                WindowedSerdes.sessionWindowedSerdeFrom(String.class).deserializer();
            case "changelog-windows" ->
                new WindowedSerdes.TimeWindowedSerde<>(Serdes.String(), WINDOW_MS)
                    .forChangelog(true).deserializer();
            default -> throw new IllegalArgumentException("No kind '" + kind + "'.");
        };
        return (Deserializer<Object>) made;
    }

    private static void print(final ConsumerRecord<Object, Long> record, final int partitions) {
        final boolean windowed = record.key() instanceof Windowed;
        final Windowed<?> window = windowed ? (Windowed<?>) record.key() : null;
        final String key = (String) (windowed ? window.key() : record.key());
        final byte[] raw = new StringSerializer().serialize(record.topic(), key);
        System.out.printf(
            "%s %d %d %s %d %d %d %d%n", record.topic(), record.partition(),
            BuiltInPartitioner.partitionForKey(raw, partitions), key,
            windowed ? window.window().start() : 0, windowed ? window.window().end() : 0,
            record.value(), record.timestamp());
    }
}
