import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Prints the groups and names of the metrics of Kafka Streams: those of a client that finds no
 * broker, and those of a topology in the test driver. Its stores are in memory, so those of RocksDB
 * are left out. So are those of standby tasks.
 *
 * <p>With the jars of Kafka Streams, its test utils and a broker on the class path:
 * java -cp "..." MetricNames.java > kafka-streams-metrics-4.3.0.txt
 */
public class MetricNames {
    /** The thread registers the metrics of its state updater when it starts. */
    private static final long START_MS = 2_000;

    public static void main(final String[] arguments) throws InterruptedException {
        final Set<String> names = new TreeSet<>();
        for (final String protocol : List.of("classic", "streams")) {
            try (KafkaStreams streams = new KafkaStreams(topology(), properties(protocol))) {
                streams.start();
                Thread.sleep(START_MS);
                add(names, streams.metrics().keySet());
                streams.close(Duration.ofMillis(1));
            }
        }
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), properties("classic"))) {
            driver.createInputTopic(
                "in", Serdes.String().serializer(), Serdes.String().serializer()
            ).pipeInput("key", "value");
            add(names, driver.metrics().keySet());
        }
        names.forEach(System.out::println);
        System.exit(0);
    }

    private static void add(final Set<String> names, final Set<? extends MetricName> found) {
        for (final MetricName each : found) {
            if (each.group().startsWith("stream-")) {
                names.add(each.group() + " " + each.name());
            }
        }
    }

    private static Properties properties(final String protocol) {
        final Properties properties = new Properties();
        properties.putAll(new HashMap<String, Object>(Map.of(
            "application.id", "metrics", "bootstrap.servers", "127.0.0.1:1",
            "group.protocol", protocol, "metrics.recording.level", "TRACE",
            "default.key.serde", Serdes.StringSerde.class,
            "default.value.serde", Serdes.StringSerde.class,
            "dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers"
        )));
        return properties;
    }

    private static Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> in = builder.stream("in");
        in.groupByKey().count().toStream().mapValues(count -> "" + count).to("out");
        in.groupByKey().windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(1)))
            .emitStrategy(EmitStrategy.onWindowClose()).count();
        in.groupByKey().windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(1)))
            .count();
        builder.<String, String>table("table").suppress(
            Suppressed.untilTimeLimit(Duration.ofSeconds(1), Suppressed.BufferConfig.unbounded())
        ).toStream().to("suppressed");
        return builder.build();
    }
}
