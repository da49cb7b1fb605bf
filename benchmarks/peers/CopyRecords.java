// Kafka Streams: parse the JSON records of a topic, and write them into another one.
//
//     java -cp … CopyRecords.java FILE INPUT OUTPUT     (FILE: Kafka Streams' properties)

import java.io.FileReader;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.connect.json.JsonDeserializer;
import org.apache.kafka.connect.json.JsonSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

public class CopyRecords {
    public static void main(String[] arguments) throws Exception {
        var properties = new Properties();
        try (var file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        var json = Serdes.serdeFrom(new JsonSerializer(), new JsonDeserializer());
        var builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.ByteArray(), json))
            .to(arguments[2], Produced.with(Serdes.ByteArray(), json));
        var streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
