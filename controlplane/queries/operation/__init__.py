"""The operation of the service: health, metrics, quarantine, audit."""
