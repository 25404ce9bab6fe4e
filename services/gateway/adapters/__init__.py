"""How the gateway reaches the outside: engine over HTTP, router over gRPC, records in the store, signed keys."""
