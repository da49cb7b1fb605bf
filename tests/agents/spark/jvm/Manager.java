package arrestertest;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import SPARK_PACKAGE.CheckpointFileManager;

/** A platform's own class for the files of checkpoints: its creates are exclusive. */
public class Manager implements CheckpointFileManager {
    public Manager(Path path, Configuration conf) { }

    public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
            Path path, boolean overwrite) {
        return new Stream(new ObjectStore.Upload(ObjectStore.key(path), !overwrite));
    }

    public FSDataInputStream open(Path path) { throw new UnsupportedOperationException(); }

    public FileStatus[] list(Path path, PathFilter filter) { return new FileStatus[0]; }

    public FileStatus[] list(Path path) { return new FileStatus[0]; }

    public void mkdirs(Path path) { }

    public boolean exists(Path path) { return false; }

    public void delete(Path path) { }

    public boolean isLocal() { return false; }

    public Path createCheckpointDirectory() { return null; }

    public void close() { }

    public static class Stream extends CheckpointFileManager.CancellableFSDataOutputStream {
        Stream(ObjectStore.Upload upload) { super(upload); }

        public void cancel() { }
    }
}
