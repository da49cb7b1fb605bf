# Two images: `server` (web, wake, worker, migrate) has no Spark, `demo` has no Django.
FROM python:3.13-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 10001 arrester && install -d -o arrester /data
WORKDIR /app

FROM base AS server
COPY requirements/server.txt requirements/kafka.txt requirements/
RUN pip install --require-hashes -r requirements/server.txt -r requirements/kafka.txt
COPY arrester arrester
COPY cli cli
COPY controlplane controlplane
COPY dashboard dashboard
COPY domain domain
COPY migrations migrations
ENV ARRESTER_HOME=/data
USER arrester
CMD ["uvicorn", "arrester.controlplane.web.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off", "--no-proxy-headers", "--http", "arrester.controlplane.web.http_protocol:TimedHeaders"]

FROM base AS demo
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/tools.txt requirements/agents.txt requirements/demo.txt requirements/
RUN pip install --require-hashes -r requirements/tools.txt \
    && pip install --require-hashes --no-build-isolation -r requirements/agents.txt \
    && pip install --require-hashes --no-build-isolation --no-deps -r requirements/demo.txt
COPY arrester arrester
COPY agents agents
COPY domain domain
COPY examples examples
ENV PYTHONPATH=/app ARRESTER_HOME=/data
USER arrester
CMD ["python", "-m", "arrester.examples.flights"]
