"""Doors of the gateway: gRPC for users and services, HTTP for agents, the bus. They translate and call."""
