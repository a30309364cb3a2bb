import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The plain loop of the Java client: `Drain BOOTSTRAP TOPIC COUNT GROUP`.
 *
 * Reads COUNT records, touching key, value and headers of each, with an asynchronous commit per poll, and prints the
 * JSON line of benchmarks/meter.py. The last commit is synchronous, and part of what is measured.
 */
public final class Drain {
    public static void main(String[] arguments) throws Exception {
        long count = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[3]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        // By default 500: as many records per commit and turn of the loop as the Python loops have.
        settings.put("max.poll.records", "10000");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long seen = 0;
        long bytes = 0;
        long began = 0;
        long cpuBegan = 0;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            while (seen < count) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(1));
                if (records.isEmpty()) {
                    continue;
                }
                if (seen == 0) {
                    began = System.nanoTime();
                    cpuBegan = system.getProcessCpuTime();
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    bytes += record.key().length + record.value().length;
                    for (Header header : record.headers()) {
                        bytes += header.key().length() + header.value().length;
                    }
                }
                seen += records.count();
                if (seen < count) {
                    consumer.commitAsync();
                }
            }
            consumer.commitSync();
            double seconds = (System.nanoTime() - began) / 1e9;
            double cpu = (system.getProcessCpuTime() - cpuBegan) / 1e9;
            // Also keeps the sum of the bytes in use, so that nothing of the loop can be optimised away.
            System.err.println(bytes + " bytes");
            System.out.printf(
                    Locale.ROOT,
                    "{\"records\": %d, \"seconds\": %f, \"cpu\": %f, \"rss_mib\": %f}%n",
                    seen, seconds, cpu, peakMib());
        }
    }

    private static double peakMib() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.split("\\s+")[1]) / 1024.0;
            }
        }
        throw new IllegalStateException("/proc/self/status has no VmHWM");
    }
}
