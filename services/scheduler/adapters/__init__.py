"""One outside thing each: the recorded queue, the published events and their manifests, the trainer's reports."""
