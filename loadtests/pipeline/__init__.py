"""How many episodes a second the services carry from submission to batch, and what a kill -9 on the way costs.

stack          the broker, the gateway, the scheduler and the reward service as processes; their CPU and memory
recordings     trajectories of 20 turns of 1,000 tokens, put into the blob store before the clock starts
world          scripted rollout and trainer on stores and relays of their own, as the real ones have
legs           one run through all of it: submitted by gRPC, timed, killed where asked, audited from the event stores
temporal       the Temporal server, and `bare`: workflows of the same shape in a worker that does nothing else
It refuses to report a rate without the count of what was lost or came twice.
"""
