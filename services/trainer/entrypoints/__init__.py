"""Doors of the trainer: gRPC. The broker calls application.Trainer.handle as it is."""
