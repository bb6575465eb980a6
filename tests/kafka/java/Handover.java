import static java.time.Duration.ofMillis;

import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.WindowStore;

/**
 * The topology of tests/kafka/test_java_handover.py, which has the same one.
 *
 * With -Dhandover.fails=true the steps behind the repartitions fail, so the application ends with
 * unread records in its repartition topics.
 */
final class Handover {
    private static final TimeWindows TUMBLING =
        TimeWindows.ofSizeAndGrace(ofMillis(2_000), ofMillis(1_000));

    private Handover() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("handover", Handover::build);
    }

    private static void build(final StreamsBuilder builder, final String output) {
        final KStream<String, String> events = builder.stream("events");
        longs(
            events.selectKey((key, value) -> Text.region(value))
                .repartition(Repartitioned.as("windowed"))
                .mapValues(Handover::checked).groupByKey().windowedBy(TUMBLING)
                .count(stored("tumbling")),
            output + "-windows");
        longs(
            events.groupByKey().windowedBy(TUMBLING).emitStrategy(EmitStrategy.onWindowClose())
                .count(stored("final")),
            output + "-closed");
        final KStream<String, String> others = builder.stream("others");
        others.processValues(StreamTime::new).to(output + "-times");
        others.selectKey((key, value) -> Text.region(value))
            .repartition(Repartitioned.as("timed"))
            .mapValues(Handover::checked).processValues(StreamTime::new)
            .to(output + "-repartitioned-times");
    }

    private static String checked(final String value) {
        if (Boolean.getBoolean("handover.fails")) {
            throw new IllegalStateException("This run ends here.");
        }
        return value;
    }

    private static Materialized<String, Long, WindowStore<Bytes, byte[]>> stored(
        final String name) {
        return Materialized.<String, Long, WindowStore<Bytes, byte[]>>as(name)
            .withValueSerde(Serdes.Long());
    }

    private static void longs(final KTable<Windowed<String>, Long> table, final String output) {
        table.toStream().to(
            output,
            Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, 2_000), Serdes.Long()));
    }

    /** Forwards the number of the record and the stream time. */
    private static final class StreamTime
        extends ContextualFixedKeyProcessor<String, String, String> {
        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            context().forward(record.withValue(
                Text.number(record.value()) + " at " + context().currentStreamTimeMs()));
        }
    }
}
