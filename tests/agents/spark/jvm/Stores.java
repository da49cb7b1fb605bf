package arrestertest;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** S3 as Hadoop shows it: a file appears when it is closed, and a rename is a look and a copy. */
public class ObjectStore extends FileSystem {
    public static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

    /** All stores of a process have the same content, as if their drivers were on two hosts. */
    public static final ConcurrentHashMap FILES = new ConcurrentHashMap();

    private URI uri;

    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        setConf(conf);
        uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    }

    public String getScheme() { return uri.getScheme(); }

    public URI getUri() { return uri; }

    public Path getWorkingDirectory() { return new Path(uri.toString() + "/"); }

    public void setWorkingDirectory(Path path) { }

    public boolean mkdirs(Path path, FsPermission permission) { return true; }

    public static String key(Path path) { return path.toUri().getPath(); }

    boolean honoursConditions() { return getConf().getBoolean("arrestertest.conditional", false); }

    public FSDataOutputStream create(
            Path path, FsPermission permission, boolean overwrite, int buffer, short replication,
            long block, Progressable progress) throws IOException {
        if (!overwrite && FILES.containsKey(key(path))) {
            throw new FileAlreadyExistsException(key(path));
        }
        return new FSDataOutputStream(new Upload(key(path), false), null);
    }

    public FSDataOutputStreamBuilder createFile(Path path) { return new Builder(this, path); }

    public FSDataOutputStream append(Path path, int buffer, Progressable progress) {
        throw new UnsupportedOperationException();
    }

    public FSDataInputStream open(Path path, int buffer) throws IOException {
        byte[] content = (byte[]) FILES.get(key(path));
        if (content == null) {
            throw new FileNotFoundException(key(path));
        }
        return new FSDataInputStream(new Download(content));
    }

    public boolean rename(Path source, Path target) throws IOException {
        if (FILES.containsKey(key(target))) {
            return false;
        }
        Thread.yield();
        FILES.put(key(target), FILES.get(key(source)));
        FILES.remove(key(source));
        return true;
    }

    /** HDFS: the name node renames in one step, and never onto an existing file. */
    void renameExclusively(Path source, Path target) throws IOException {
        if (FILES.putIfAbsent(key(target), FILES.get(key(source))) != null) {
            throw new FileAlreadyExistsException(key(target));
        }
        FILES.remove(key(source));
    }

    public boolean delete(Path path, boolean recursive) {
        boolean found = false;
        for (Iterator i = FILES.keySet().iterator(); i.hasNext();) {
            String each = (String) i.next();
            if (each.equals(key(path)) || each.startsWith(key(path) + "/")) {
                FILES.remove(each);
                found = true;
            }
        }
        return found;
    }

    public FileStatus getFileStatus(Path path) throws IOException {
        byte[] content = (byte[]) FILES.get(key(path));
        if (content != null) {
            return new FileStatus(content.length, false, 1, 1024L, 0L, path);
        }
        if (listStatus(path).length > 0 || key(path).equals("/")) {
            return new FileStatus(0L, true, 1, 1024L, 0L, path);
        }
        throw new FileNotFoundException(key(path));
    }

    public FileStatus[] listStatus(Path path) throws FileNotFoundException {
        List found = new ArrayList();
        for (Iterator i = FILES.keySet().iterator(); i.hasNext();) {
            String each = (String) i.next();
            String folder = key(path).equals("/") ? "/" : key(path) + "/";
            if (each.startsWith(folder) && each.indexOf('/', folder.length()) < 0) {
                found.add(new FileStatus(1L, false, 1, 1024L, 0L, new Path(uri.toString() + each)));
            }
        }
        FileStatus[] result = new FileStatus[found.size()];
        for (int i = 0; i < result.length; i++) {
            result[i] = (FileStatus) found.get(i);
        }
        return result;
    }

    public static class Upload extends ByteArrayOutputStream {
        private final String key;
        private final boolean conditional;
        private boolean closed;

        public Upload(String key, boolean conditional) {
            this.key = key;
            this.conditional = conditional;
        }

        public void close() throws IOException {
            if (closed) {
                return;
            }
            closed = true;
            if (!conditional) {
                FILES.put(key, toByteArray());
            } else if (FILES.putIfAbsent(key, toByteArray()) != null) {
                throw new IOException("PUT " + key + ": 412 Precondition Failed");
            }
        }
    }

    public static class Builder extends FSDataOutputStreamBuilder {
        private final ObjectStore store;
        private final Path target;

        Builder(ObjectStore store, Path path) {
            super(store, path);
            this.store = store;
            this.target = path;
        }

        public FSDataOutputStreamBuilder getThisBuilder() { return this; }

        public FSDataOutputStream build() throws IOException {
            if (store.honoursConditions() && getOptions().getBoolean(CONDITIONAL, false)) {
                return new FSDataOutputStream(new Upload(key(target), true), null);
            }
            return store.create(target, null, false, 0, (short) 1, 0L, null);
        }
    }

    public static class Download extends FSInputStream {
        private final byte[] content;
        private int position;

        Download(byte[] content) { this.content = content; }

        public int read() { return position < content.length ? content[position++] & 255 : -1; }

        public void seek(long to) { position = (int) to; }

        public long getPos() { return position; }

        public boolean seekToNewSource(long to) { return false; }
    }

    /** The same files with the rename of HDFS. */
    public static class NameNode extends DelegateToFileSystem {
        public NameNode(URI uri, Configuration conf) throws Exception {
            super(uri, new ObjectStore(), conf, uri.getScheme(), false);
        }

        public int getUriDefaultPort() { return -1; }

        public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
            ((ObjectStore) fsImpl).renameExclusively(source, target);
        }
    }

    /** Folders and files of the local disk under an URL of HDFS. */
    public static class Disk extends RawLocalFileSystem {
        public URI getUri() { return URI.create("hdfs://disk"); }
    }

    /** The rename of HDFS on the local disk. */
    public static class DiskNameNode extends DelegateToFileSystem {
        public DiskNameNode(URI uri, Configuration conf) throws Exception {
            super(uri, new Disk(), conf, "hdfs", false);
        }

        public int getUriDefaultPort() { return -1; }

        public void renameInternal(Path source, Path target, boolean overwrite) throws IOException {
            File from = new File(key(source));
            File to = new File(key(target));
            if (overwrite) {
                to.delete();
            }
            try {
                java.nio.file.Files.createLink(to.toPath(), from.toPath());
            } catch (java.nio.file.FileAlreadyExistsException exc) {
                throw new FileAlreadyExistsException(key(target));
            }
            from.delete();
        }
    }
}
