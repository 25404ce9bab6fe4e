"""Runs and episodes as gRPC shows them.

It refuses to compute anything that the folds don't know.
"""

from forgerl.gateway.v1 import episode_service_pb2 as episode_api
from forgerl.gateway.v1 import run_service_pb2 as run_api

from services.contract.trajectory import Trajectory
from services.gateway.domain.episodes import Episode
from services.gateway.domain.messages import to_json
from services.gateway.domain.runs import Run
from services.gateway.domain.tree import MessageTree
from services.gateway.views import EpisodeLine, RunLine


def run_view(run: Run, line: RunLine) -> run_api.RunView:
    """A run with its counts."""
    view = run_api.RunView(
        run_id=run.run_id,
        spec=run.spec,
        state=run.state,
        end_reason=run.end_reason,
        steps=run.steps,
        episodes_submitted=line.submitted,
        episodes_sealed=line.sealed,
        evaluations_submitted=line.evaluations_submitted,
        evaluations_sealed=line.evaluations_sealed,
        metrics=run.metrics,
        failure=run.failure,
    )
    if run.created_at is not None:
        view.created_at.FromDatetime(run.created_at)
    if run.ended_at is not None:
        view.ended_at.FromDatetime(run.ended_at)
    if run.policy is not None:
        view.policy_step, view.policy_digest, view.policy_uri = run.policy.step, run.policy.digest, run.policy.uri
    return view


def episode_view(episode: Episode, run: Run, line: EpisodeLine | None, traceparent: str) -> episode_api.EpisodeView:
    """An episode with what its agent needs to know of the run."""
    submitted = episode.submitted
    turns = episode.sealed or line
    view = episode_api.EpisodeView(
        submission=episode_api.Submission(
            episode_id=submitted.episode_id,
            run_id=submitted.run_id,
            kind=submitted.kind,
            group_id=submitted.group_id,
            domain=submitted.domain,
            task=submitted.task,
            pinned_step=submitted.pinned_step if submitted.HasField("pinned_step") else None,
            recorded=submitted.recorded if submitted.HasField("recorded") else None,
        ),
        state=episode.state,
        outcome=episode.outcome,
        answer=episode.answer,
        detail=episode.detail,
        score=episode.score,
        agent_wall_s=episode.agent_wall_s,
        turn_count=turns.turn_count if turns else 0,
        sampled_tokens=turns.sampled_tokens if turns else 0,
        traceparent=traceparent,
    )
    if episode.submitted_at is not None:
        view.submitted_at.FromDatetime(episode.submitted_at)
    if episode.changed_at is not None:
        view.changed_at.FromDatetime(episode.changed_at)
    if episode.sealed is not None:
        _add_seal(view, episode)
    domain = next((domain for domain in run.spec.domains if domain.name == submitted.domain), None)
    if domain is not None:
        view.agent, view.agent_timeout_s, view.max_turns = domain.agent, domain.agent_timeout_s, domain.max_turns
    return view


def _add_seal(view: episode_api.EpisodeView, episode: Episode) -> None:
    sealed = episode.sealed
    assert sealed is not None
    view.trajectory.CopyFrom(sealed.trajectory)
    view.turn_count, view.sampled_tokens = sealed.turn_count, sealed.sampled_tokens
    view.tree_tokens, view.branch_tokens = sealed.tree_tokens, sealed.branch_tokens
    if sealed.turn_count:
        view.first_policy_step, view.last_policy_step = sealed.first_policy_step, sealed.last_policy_step


def transcript(tree: MessageTree) -> episode_api.Transcript:
    """All nodes of a tree, with text."""
    answer = episode_api.Transcript()
    for node in tree.nodes:
        line = answer.nodes.add(
            node_id=node.node_id,
            parent_id=node.parent_id,
            sampled=node.sample is not None,
            message_json=to_json(node.message),
            token_count=len(node.token_ids),
            infra=tree.is_infra(node),
        )
        if node.sample is not None:
            line.finish_reason = node.sample.finish_reason
            line.mean_logprob = sum(node.sample.logprobs) / max(1, len(node.sample.logprobs))
            for span in node.sample.spans:
                line.spans.add(
                    start=span.start, end=span.end, policy_step=span.policy_step, policy_digest=span.policy_digest
                )
    return answer


def recorded_transcript(trajectory: Trajectory) -> episode_api.Transcript:
    """The same of an episode that was run elsewhere."""
    answer = episode_api.Transcript()
    for node in trajectory.nodes:
        line = answer.nodes.add(
            node_id=node.node_id,
            parent_id=node.parent_id,
            sampled=node.sampled,
            message_json=node.message_json,
            token_count=len(node.token_ids),
            finish_reason=node.finish_reason,
            mean_logprob=sum(node.logprobs) / max(1, len(node.logprobs)),
        )
        for span in node.spans:
            line.spans.add(
                start=span.start,
                end=span.end,
                policy_step=max(0, span.policy_step),
                policy_digest=span.policy_digest,
            )
    return answer
