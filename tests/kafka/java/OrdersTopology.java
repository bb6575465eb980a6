import static java.time.Duration.ofSeconds;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;

/** The application of examples/orders; its output topics begin with the name of the output. */
final class OrdersTopology {
    private OrdersTopology() {
    }

    static void build(final StreamsBuilder builder, final String output) {
        final KTable<String, JsonNode> stores = builder.table(
            "stores", Consumed.with(Serdes.String(), Json.serde()),
            Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as("stores"));
        final KStream<String, JsonNode> orders = builder.stream(
            "orders",
            Consumed.with(Serdes.String(), Json.serde())
                .withTimestampExtractor(OrdersTopology::orderedAt));
        final Map<String, KStream<String, JsonNode>> branches = orders.split(Named.as("by-type-"))
            .branch((key, order) -> isOf(order, "GENERAL"), Branched.as("general"))
            .branch((key, order) -> isOf(order, "RESTAURANT"), Branched.as("restaurant"))
            .noDefaultBranch();
        for (final String kind : List.of("general", "restaurant")) {
            totalsOf(branches.get("by-type-" + kind), kind, stores, output);
        }
    }

    private static boolean isOf(final JsonNode order, final String type) {
        return order.get("orderType").asText().equals(type);
    }

    private static long orderedAt(
        final ConsumerRecord<Object, Object> record, final long partitionTime) {
        if (!(record.value() instanceof JsonNode)) {
            return partitionTime;
        }
        final String time = ((JsonNode) record.value()).get("orderedDateTime").asText();
        return LocalDateTime.parse(time).toInstant(ZoneOffset.UTC).toEpochMilli();
    }

    private static void totalsOf(
        final KStream<String, JsonNode> orders, final String kind,
        final KTable<String, JsonNode> stores, final String output) {
        orders.mapValues(OrdersTopology::revenueOf)
            .to(output + "-" + kind + "-orders", Produced.with(Serdes.String(), Json.serde()));
        final KGroupedStream<String, JsonNode> byStore = orders
            .selectKey((key, order) -> order.get("locationId").asText())
            .groupByKey(Grouped.with(kind + "-orders-by-store", Serdes.String(), Json.serde()));
        byStore.count(Materialized.as(kind + "_orders_count"));
        byStore.windowedBy(TimeWindows.ofSizeAndGrace(ofSeconds(60), ofSeconds(15)))
            .count(Materialized.as(kind + "_orders_count_window"));
        byStore.windowedBy(TimeWindows.ofSizeAndGrace(ofSeconds(15), ofSeconds(5))).aggregate(
            OrdersTopology::nothing, OrdersTopology::add,
            Materialized.<String, JsonNode, WindowStore<Bytes, byte[]>>as(
                kind + "_orders_revenue_window").withValueSerde(Json.serde()));
        byStore.aggregate(
                OrdersTopology::nothing, OrdersTopology::add,
                Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(
                    kind + "_orders_revenue").withValueSerde(Json.serde()))
            .join(stores, OrdersTopology::withAddress)
            .toStream()
            .to(output + "-" + kind + "-orders-revenue",
                Produced.with(Serdes.String(), Json.serde()));
    }

    private static JsonNode revenueOf(final JsonNode order) {
        return Json.object()
            .put("locationId", order.get("locationId").asText())
            .put("finalAmount", order.get("finalAmount").asText());
    }

    private static JsonNode nothing() {
        return total("", 0, new BigDecimal("0.00"));
    }

    private static JsonNode add(
        final String location, final JsonNode order, final JsonNode total) {
        return total(
            location, total.get("runningOrderCount").asInt() + 1,
            new BigDecimal(total.get("runningRevenue").asText())
                .add(new BigDecimal(order.get("finalAmount").asText())));
    }

    private static JsonNode total(final String location, final int count, final BigDecimal sum) {
        return Json.object().put("locationId", location).put("runningOrderCount", count)
            .put("runningRevenue", sum.toPlainString());
    }

    private static JsonNode withAddress(final JsonNode total, final JsonNode store) {
        final ObjectNode both = Json.object();
        both.set("totalRevenue", total);
        both.set("store", store);
        return both;
    }
}
