#!/bin/sh
# Start Valkey or Redis, whichever the image has. The passwords are read from standard input: others on the
# machine see arguments.
set -eu

server=$(command -v valkey-server || command -v redis-server)
exec "$server" "$@" - <<CONFIGURATION
appendonly yes
appendfsync everysec
# Agents write up to three quarters of it, then to their spools.
maxmemory ${REDIS_MAXMEMORY:-1gb}
maxmemory-policy noeviction
# Agents may write large sets, and let them expire: their memory is freed beside other requests.
lazyfree-lazy-user-del yes
lazyfree-lazy-server-del yes
lazyfree-lazy-expire yes
# What clients may leave unread: one, and all together.
client-output-buffer-limit normal 256mb 0 0
maxmemory-clients 25%
# Values and entries that are larger block Redis for seconds whenever they are read.
proto-max-bulk-len 33mb
client-query-buffer-limit 48mb
requirepass $REDIS_PASSWORD
# Celery's queues, in any database, and nothing of agents: their keys begin with arrester:
user arrester-broker on >$REDIS_BROKER_PASSWORD ~arrester ~arrester[^:]* ~unacked* ~_kombu.* ~*@*.celery.pidbox* ~????????-????-????-????-????????????.reply.celery.pidbox* &/1.celery.pidbox +@all -@admin -@dangerous
CONFIGURATION
