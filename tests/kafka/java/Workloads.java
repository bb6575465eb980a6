import static java.time.Duration.ofSeconds;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.function.BiConsumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.KeyValueStore;

/** The workloads W1 to W5 of bench/runtime.py, and the copy workload of bench/kafka.py. */
final class Workloads {
    private Workloads() {
    }

    static void addTo(final Map<String, BiConsumer<StreamsBuilder, String>> topologies) {
        topologies.put("W1", Workloads::stateless);
        topologies.put("W2", Workloads::count);
        topologies.put("W3", Workloads::windows);
        topologies.put("W4", Workloads::streamTableJoin);
        topologies.put("W5", Workloads::rekeyAndAggregate);
        topologies.put("copy", Workloads::copy);
    }

    private static KStream<String, JsonNode> orders(final StreamsBuilder builder) {
        return builder.stream("orders", Consumed.with(Serdes.String(), Json.serde()));
    }

    private static Grouped<String, JsonNode> grouped() {
        return Grouped.with(Serdes.String(), Json.serde());
    }

    private static void stateless(final StreamsBuilder builder, final String output) {
        orders(builder)
            .filter((key, order) -> order.get("orderType").asText().equals("GENERAL"))
            .mapValues(order -> order.get("finalAmount").asDouble())
            .to(output, Produced.with(Serdes.String(), Serdes.Double()));
    }

    private static void count(final StreamsBuilder builder, final String output) {
        orders(builder).groupByKey(grouped()).count(Materialized.as("counts"))
            .toStream().to(output, Produced.with(Serdes.String(), Serdes.Long()));
    }

    private static void windows(final StreamsBuilder builder, final String output) {
        orders(builder).groupByKey(grouped())
            .windowedBy(TimeWindows.ofSizeAndGrace(ofSeconds(15), ofSeconds(5)))
            .count(Materialized.as("windows"))
            .toStream()
            .to(output, Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(String.class, 15_000), Serdes.Long()));
    }

    private static void streamTableJoin(final StreamsBuilder builder, final String output) {
        final KTable<String, JsonNode> customers = builder.table(
            "customers", Consumed.with(Serdes.String(), Json.serde()),
            Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("customers"));
        orders(builder)
            .join(
                customers, Workloads::withName,
                Joined.with(Serdes.String(), Json.serde(), Json.serde()))
            .to(output, Produced.with(Serdes.String(), Json.serde()));
    }

    private static JsonNode withName(final JsonNode order, final JsonNode customer) {
        final ObjectNode joined = Json.object();
        joined.setAll((ObjectNode) order);
        return joined.set("name", customer.get("name"));
    }

    private static void rekeyAndAggregate(final StreamsBuilder builder, final String output) {
        orders(builder)
            .selectKey((key, order) -> order.get("locationId").asText())
            .groupByKey(grouped())
            .aggregate(
                () -> total(0, 0.0),
                (location, order, sum) -> total(
                    sum.get("count").asInt() + 1,
                    sum.get("revenue").asDouble() + order.get("finalAmount").asDouble()),
                Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("revenue")
                    .withValueSerde(Json.serde()))
            .toStream().to(output, Produced.with(Serdes.String(), Json.serde()));
    }

    private static JsonNode total(final int count, final double revenue) {
        return Json.object().put("count", count).put("revenue", revenue);
    }

    /** Copies records. The latency is measured outside. */
    private static void copy(final StreamsBuilder builder, final String output) {
        final KStream<String, String> orders = builder.stream("timed-orders");
        orders.mapValues(String::toString).to(output);
    }
}
