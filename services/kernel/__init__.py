"""Plumbing that every service stands on: it moves, keeps and reports messages, and knows nothing of what they mean.

errors, clock, settings, logs, telemetry   what every process needs first
envelope, catalogue                        an event and its headers; topics, derived from options on the messages
event_store, recorders, lease              truth: streams of events in SQLite or Postgres; who of several may relay
topics, outbox, inbox                      published events leave (relay) and arrive (once, in order)
broker, delivery, dead_letters             consuming over Kafka: retries, parking, what could not be handled
blobs                                      bytes by reference, in a folder or on S3
rpc, temporal                              gRPC servers and channels; the Temporal client
lifecycle                                  a process: its parts, its signals, its health
It refuses to hold any word of the domain, and to start anything by being imported.
"""
