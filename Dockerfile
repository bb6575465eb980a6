# One image for the driver and the executors of penstock applications: Python 3.11, Java 17, Spark.
# An application adds its own code, see the Dockerfile that `penstock new` creates.
#
#     docker build --tag penstock:0.1.0 .

# Debian 12, because Debian 13 has no Java 17.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY src ./src
COPY examples ./examples
# A native core that cannot be compiled fails the build.
RUN PENSTOCK_STRICT_BUILD=1 pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE}
ARG EXTRAS=kafka,pydantic,registry,spark,web
# The packages of Java need the directory of manual pages, which slim images lack.
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
# `penstock prepare` stores the classes of Spark, so that applications start faster.
RUN pip install --no-cache-dir "$(echo /wheels/penstock-*.whl)[${EXTRAS}]" \
    && rm -r /wheels \
    && penstock prepare
COPY --chmod=755 deploy/docker/entrypoint.sh /usr/local/bin/entrypoint.sh

# Spark needs a name for the user id. The state of stores is in its home directory.
RUN groupadd --gid 10001 penstock \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/penstock --create-home penstock
WORKDIR /var/lib/penstock
# As a number: Kubernetes then knows that it is not root.
USER 10001
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/entrypoint.sh"]
CMD ["penstock", "--help"]
