import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.StateQueryResult;
import org.apache.kafka.streams.state.AggregationWithHeaders;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.ValueTimestampHeaders;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;

/**
 * Runs queries on the stores of an application that has processed everything.
 *
 *   RunQueries BOOTSTRAP ID [NAME=VALUE ...]
 *
 * Each line of standard input is a request in JSON: its name, the store, the class of the query, and
 * calls of methods, the first of which creates it. Numbers in calls are instants. Optional are
 * partitions, bound (topic, partition, offset) and active. Each partition result is one line of JSON
 * on standard output, as is the exception of a request.
 */
final class RunQueries {
    private RunQueries() {
    }

    public static void main(final String[] arguments) throws Exception {
        final Application application = new Application(
            arguments[0], arguments[1], "kinds_of_stores", arguments[1],
            Application.settings(Arrays.asList(arguments).subList(2, arguments.length)));
        try (application; Progress progress = new Progress(arguments[0])) {
            application.start();
            progress.awaitAll(List.of(application), Duration.ofMinutes(2));
            final BufferedReader requests = new BufferedReader(
                new InputStreamReader(System.in, StandardCharsets.UTF_8));
            String line;
            while ((line = requests.readLine()) != null) {
                run(application, Json.parse(line));
            }
        }
    }

    private static void run(final Application application, final JsonNode asked) {
        final String name = asked.get("name").textValue();
        try {
            final StateQueryResult<Object> found = application.query(request(asked));
            if (found.getGlobalResult() != null) {
                print(name, -1, found.getGlobalResult());
            }
            new TreeMap<>(found.getPartitionResults())
                .forEach((partition, result) -> print(name, partition, result));
        } catch (final RuntimeException error) {
            System.out.println(Json.text(
                named("name", name, "exception", error.getClass().getSimpleName())));
        }
    }

    private static void print(final String name, final int partition, final QueryResult<?> result) {
        final Map<String, Object> line = named("name", name, "partition", partition);
        if (result.isSuccess()) {
            line.put("result", shown(result.getResult()));
        } else {
            line.put("failure", result.getFailureReason().name());
            line.put("message", result.getFailureMessage());
        }
        line.put("position", result.getPosition() == null ? null : shown(result.getPosition()));
        System.out.println(Json.text(line));
    }

    private static StateQueryRequest<Object> request(final JsonNode asked) {
        StateQueryRequest<Object> request =
            StateQueryRequest.inStore(asked.get("store").textValue()).withQuery(query(asked));
        if (asked.has("partitions")) {
            final Set<Integer> partitions = new HashSet<>();
            asked.get("partitions").forEach(each -> partitions.add(each.intValue()));
            request = request.withPartitions(partitions);
        }
        if (asked.has("bound")) {
            final JsonNode at = asked.get("bound");
            request = request.withPositionBound(PositionBound.at(Position.emptyPosition()
                .withComponent(at.get(0).textValue(), at.get(1).intValue(), at.get(2).longValue())));
        }
        return asked.path("active").booleanValue() ? request.requireActive() : request;
    }

    @SuppressWarnings("unchecked")
    private static Query<Object> query(final JsonNode asked) {
        try {
            final Class<?> type = Class.forName(
                "org.apache.kafka.streams.query." + asked.get("query").textValue());
            Object query = null;
            for (final JsonNode call : asked.get("calls")) {
                final List<Object> values = new ArrayList<>();
                call.forEach(each -> values.add(each.isNumber()
                    ? Instant.ofEpochMilli(each.longValue()) : each.textValue()));
                final Object name = values.remove(0);
                final Method method = Arrays.stream(type.getMethods())
                    .filter(each -> each.getName().equals(name)
                        && each.getParameterCount() == values.size())
                    .findFirst().orElseThrow();
                query = method.invoke(query, values.toArray());
            }
            return (Query<Object>) query;
        } catch (final InvocationTargetException error) {
            throw (RuntimeException) error.getCause();
        } catch (final ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A result as JSON has it: its iterators as lists, its records as objects. */
    private static Object shown(final Object found) {
        if (found instanceof KeyValueIterator<?, ?> rows) {
            final List<Object> all = new ArrayList<>();
            try (rows) {
                while (rows.hasNext()) {
                    final KeyValue<?, ?> row = rows.next();
                    all.add(Arrays.asList(shown(row.key), shown(row.value)));
                }
            }
            return all;
        }
        if (found instanceof VersionedRecordIterator<?> versions) {
            final List<Object> all = new ArrayList<>();
            try (versions) {
                versions.forEachRemaining(each -> all.add(shown(each)));
            }
            return all;
        }
        if (found instanceof Windowed<?> key) {
            return named(
                "key", key.key(), "start", key.window().start(), "end", key.window().end());
        }
        if (found instanceof ValueAndTimestamp<?> row) {
            return named("value", row.value(), "timestamp", row.timestamp());
        }
        if (found instanceof VersionedRecord<?> row) {
            return named("value", row.value(), "timestamp", row.timestamp(),
                "valid_to", row.validTo().orElse(null));
        }
        if (found instanceof ValueTimestampHeaders<?> row) {
            return named("value", row.value(), "timestamp", row.timestamp(),
                "headers", shown(row.headers()));
        }
        if (found instanceof AggregationWithHeaders<?> row) {
            return named("aggregation", row.aggregation(), "headers", shown(row.headers()));
        }
        if (found instanceof Headers headers) {
            final List<Object> all = new ArrayList<>();
            headers.forEach(each -> all.add(
                List.of(each.key(), new String(each.value(), StandardCharsets.UTF_8))));
            return all;
        }
        if (found instanceof Position position) {
            final Map<String, Object> offsets = new TreeMap<>();
            position.getTopics().forEach(
                topic -> offsets.put(topic, position.getPartitionPositions(topic)));
            return offsets;
        }
        return found;
    }

    private static Map<String, Object> named(final Object... pairs) {
        final Map<String, Object> found = new LinkedHashMap<>();
        for (int at = 0; at < pairs.length; at += 2) {
            found.put((String) pairs[at], pairs[at + 1]);
        }
        return found;
    }
}
