"""Pure rules of the gateway: messages, the message tree, the token bridge, call identity, runs and episodes."""
