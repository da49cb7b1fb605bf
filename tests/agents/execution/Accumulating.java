package arrestertest;

import org.apache.spark.sql.api.java.UDF1;

/** A function of a user that keeps the text of a failed call for the next one. */
public class Accumulating implements UDF1 {
    private final StringBuilder texts = new StringBuilder();

    public Object call(Object text) {
        texts.append(text);
        if (text.equals("bad")) throw new AssertionError("bad text");
        String result = texts.toString();
        texts.setLength(0);
        return result;
    }
}
