#!/usr/bin/env bash
# librdkafka: one invalid message makes all messages of its batch look invalid; two invalid ones do not.
#
# Versions: confluent-kafka 2.16.1 with its librdkafka, Kafka 4.3.1; the same with confluent-kafka 2.12.1.
#
# A topic refuses timestamps more than an hour ahead of the broker's clock. The broker then refuses the whole
# batch and lists the messages that it means (KIP-467); librdkafka gives the others _INVALID_DIFFERENT_RECORD.
# With two invalid messages it does so, but the invalid ones lose their reason: they have INVALID_RECORD, as
# a message without a key has in a compacted topic. With one invalid message all messages of the batch, also
# the valid ones, fail with INVALID_TIMESTAMP, and nothing says which of them it was. The messages of a batch
# depend on linger.ms and the load, so code that drops a message because of INVALID_TIMESTAMP sometimes
# drops valid ones.
#
# What to do: send each message of a refused batch again, by itself, before one of them is given up.
set -euo pipefail
# shellcheck source=findings/environment.sh
source "$(dirname "$0")/environment.sh"
install confluent-kafka==2.16.1

JAVA_HOME=$(scripts/java)
KAFKA=("$JAVA_HOME/bin/java" -Xmx512m -cp "$(scripts/jars kafka-server)/*")
PORT=$(free_port) CONTROLLER=$(free_port)
cat >"$FOLDER/broker.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:$CONTROLLER
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
listeners=PLAINTEXT://127.0.0.1:$PORT,CONTROLLER://127.0.0.1:$CONTROLLER
log.dirs=$FOLDER/data
EOF
"${KAFKA[@]}" kafka.tools.StorageTool format --standalone --cluster-id findings-of-a-batch-ww \
    --config "$FOLDER/broker.properties" >"$FOLDER/format.log" 2>&1
serve "${KAFKA[@]}" kafka.Kafka "$FOLDER/broker.properties"

cat >"$FOLDER/expected" <<'EOF'
valid: arrived
valid, ahead, valid: INVALID_TIMESTAMP, INVALID_TIMESTAMP, INVALID_TIMESTAMP
valid, ahead, valid, ahead: _INVALID_DIFFERENT_RECORD, INVALID_RECORD, _INVALID_DIFFERENT_RECORD, INVALID_RECORD
EOF
python - "127.0.0.1:$PORT" >"$FOLDER/seen" <<'EOF'
import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": sys.argv[1], "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)
admin.create_topics([NewTopic("events", 1, 1)])["events"].result()
now = int(time.time() * 1000)
TIMES = {"valid": now, "ahead": now + 3 * 24 * 3600 * 1000}

for batch in (["valid"], ["valid", "ahead", "valid"], ["valid", "ahead", "valid", "ahead"]):
    # All messages of a flush are in one batch.
    producer = Producer({**servers, "linger.ms": 2000})
    answers = [""] * len(batch)
    for number, each in enumerate(batch):

        def report(error, _message, number=number):
            answers[number] = error.name() if error else "arrived"

        producer.produce("events", b"x", timestamp=TIMES[each], on_delivery=report)
    producer.flush(60)
    print(f"{', '.join(batch)}: {', '.join(answers)}")
EOF
expect "$FOLDER/expected" "$FOLDER/seen"
