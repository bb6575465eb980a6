import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** Records the restores that have ended. */
final class RestoreLog implements StateRestoreListener {
    /** A complete restore: the offsets of its start, and the number of records at its end. */
    record Restore(TopicPartition partition, String store, long start, long end, long total) {
    }

    private final Map<TopicPartition, Restore> running = new HashMap<>();
    private final List<Restore> ended = new ArrayList<>();

    synchronized List<Restore> ended() {
        return List.copyOf(ended);
    }

    @Override
    public synchronized void onRestoreStart(
        final TopicPartition partition, final String store, final long start, final long end) {
        running.put(partition, new Restore(partition, store, start, end, 0));
    }

    @Override
    public void onBatchRestored(
        final TopicPartition partition, final String store, final long end, final long count) {
    }

    @Override
    public synchronized void onRestoreEnd(
        final TopicPartition partition, final String store, final long total) {
        final Restore started = running.remove(partition);
        ended.add(new Restore(partition, store, started.start(), started.end(), total));
    }
}
