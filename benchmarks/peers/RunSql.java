// Flink: run the statements of a file one after the other, each to its end.
//
//     java -cp … RunSql.java FILE

import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

public class RunSql {
    public static void main(String[] arguments) throws Exception {
        var tables = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        for (var statement : Files.readString(Path.of(arguments[0])).split(";\\s*")) {
            if (statement.startsWith("SET ")) {
                var setting = statement.substring(4).split("=", 2);
                tables.getConfig().set(setting[0].strip(), setting[1].strip());
            } else {
                tables.executeSql(statement).await();
            }
        }
        System.exit(0);
    }
}
