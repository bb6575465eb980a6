import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The progress of applications, by the committed offsets of their groups.
 *
 * An application commits offsets after it has written the results. So if the committed offsets of
 * all topics that it reads, including repartition topics, are read first, and the ends of these
 * topics afterwards, and both are equal, then everything is processed.
 */
final class Progress implements AutoCloseable {
    private static final long PAUSE_MS = 20;
    /** A larger lag means records to read, not only transaction markers. */
    private static final long MOST_MARKS = 100;

    private final Admin admin;
    private final Map<Collection<String>, List<TopicPartition>> known = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> reader;

    Progress(final String bootstrap) {
        final Properties properties = new Properties();
        properties.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        admin = Admin.create(properties);
        properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        properties.put(ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, "20");
        reader = new KafkaConsumer<>(
            properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** Waits until all applications have processed everything, or fails. */
    void awaitAll(final List<Application> applications, final Duration timeout)
        throws InterruptedException {
        final long deadline = System.nanoTime() + timeout.toNanos();
        for (final Application application : applications) {
            while (!(application.isRunning() && isDone(application))) {
                application.check();
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(
                        "Application '" + application.id() + "' has not caught up in " + timeout);
                }
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    /** The number of records in the topics, by their offsets. */
    long records(final Collection<String> topics) throws InterruptedException {
        final List<TopicPartition> partitions = partitions(topics);
        final Map<TopicPartition, Long> starts = reader.beginningOffsets(partitions);
        return reader.endOffsets(partitions).entrySet().stream()
            .mapToLong(end -> end.getValue() - starts.get(end.getKey())).sum();
    }

    /** Whether an application has processed everything. */
    boolean isDone(final Application application) throws InterruptedException {
        final Map<TopicPartition, OffsetAndMetadata> committed;
        final List<TopicPartition> partitions;
        try {
            partitions = partitions(application.sources());
            committed = admin.listConsumerGroupOffsets(application.id())
                .partitionsToOffsetAndMetadata().get();
        } catch (final UnknownTopicOrPartitionException notYetCreated) {
            return false;
        } catch (final ExecutionException error) {
            if (error.getCause() instanceof GroupIdNotFoundException) {
                return false;
            }
            throw new IllegalStateException(error.getCause());
        }
        final Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
        final Map<TopicPartition, Long> starts = reader.beginningOffsets(partitions);
        final Map<TopicPartition, Long> behind = new HashMap<>();
        for (final TopicPartition partition : partitions) {
            final OffsetAndMetadata at = committed.get(partition);
            final long position = at == null ? starts.get(partition) : at.offset();
            if (position < ends.get(partition)) {
                behind.put(partition, position);
            }
        }
        if (behind.entrySet().stream()
            .anyMatch(at -> ends.get(at.getKey()) - at.getValue() > MOST_MARKS)) {
            return false;
        }
        return behind.isEmpty() || holdNothing(behind, ends);
    }

    /** Whether only transaction markers are between the positions and the ends. */
    private boolean holdNothing(
        final Map<TopicPartition, Long> positions, final Map<TopicPartition, Long> ends) {
        reader.assign(positions.keySet());
        positions.forEach(reader::seek);
        while (positions.keySet().stream()
            .anyMatch(each -> reader.position(each) < ends.get(each))) {
            if (!reader.poll(Duration.ofMillis(PAUSE_MS)).isEmpty()) {
                return false;
            }
        }
        return true;
    }

    /** Cached once all the topics exist. */
    private List<TopicPartition> partitions(final Collection<String> topics)
        throws InterruptedException {
        if (!known.containsKey(topics)) {
            known.put(topics, asked(topics));
        }
        return known.get(topics);
    }

    private List<TopicPartition> asked(final Collection<String> topics)
        throws InterruptedException {
        try {
            return admin.describeTopics(topics).allTopicNames().get().values().stream()
                .flatMap(topic -> topic.partitions().stream()
                    .map(each -> new TopicPartition(topic.name(), each.partition())))
                .collect(Collectors.toList());
        } catch (final ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) {
                throw (UnknownTopicOrPartitionException) error.getCause();
            }
            throw new IllegalStateException(error.getCause());
        }
    }

    @Override
    public void close() {
        reader.close();
        admin.close();
    }
}
