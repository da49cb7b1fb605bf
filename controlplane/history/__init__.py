"""The past: state at a position, snapshots, rebuild, retention, erasure."""
