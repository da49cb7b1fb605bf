#!/bin/sh
# Start Redis as its user. The passwords are read from standard input: others on the machine see arguments.
set -eu

exec redis-server "$@" - <<CONFIGURATION
appendonly yes
appendfsync everysec
# Agents write up to three quarters of it, then to their spools.
maxmemory ${REDIS_MAXMEMORY:-1gb}
maxmemory-policy noeviction
requirepass $REDIS_PASSWORD
# Celery's queues, in any database, and nothing of agents: their keys begin with arrester:
user arrester-broker on >$REDIS_BROKER_PASSWORD ~arrester ~arrester[^:]* ~unacked* ~_kombu.* ~*@*.celery.pidbox* ~????????-????-????-????-????????????.reply.celery.pidbox* &/1.celery.pidbox +@all -@admin -@dangerous
CONFIGURATION
