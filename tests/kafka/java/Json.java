import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** JSON as Jackson's trees. */
final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {
    }

    static Serde<JsonNode> serde() {
        return Serdes.serdeFrom(
            (topic, value) -> value == null ? null : bytes(value),
            (topic, data) -> data == null ? null : tree(data));
    }

    static ObjectNode object() {
        return MAPPER.createObjectNode();
    }

    static JsonNode parse(final String text) {
        return tree(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Text of maps, lists, strings and numbers. */
    static String text(final Object value) {
        return new String(bytes(value), StandardCharsets.UTF_8);
    }

    private static byte[] bytes(final Object value) {
        try {
            return MAPPER.writeValueAsBytes(value);
        } catch (final IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static JsonNode tree(final byte[] data) {
        try {
            return MAPPER.readTree(data);
        } catch (final IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
