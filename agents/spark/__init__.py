"""What the agent needs of Spark. Only the package `jvm` touches the JVM."""
