"""Reward: one episode's score, from its verifier and from rules about its turns.

Owns: cases (what is known of an episode until it can be scored), verifiers' runs, process rules.
In:  forgerl.gateway.episode.v1 (EpisodeSubmitted, EpisodeCancelled, TrajectorySealed),
     forgerl.rollout.episode.v1 (EpisodeFinished, EpisodeFailed)
Out: forgerl.reward.score.v1 (EpisodeScored, ScoringFailed)
gRPC: none; GET /healthz. Private streams: reward.case/<episode>.
Group terms (time, baselines) are the trainer's: they need the whole group.
"""
