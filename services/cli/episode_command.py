"""`forgerl submit, episodes, show, trace, cancel`: single episodes through the client."""

import json
from pathlib import Path

from forgerl.common.v1 import task_pb2
from forgerl.gateway.v1 import episode_service_pb2 as episodes_pb
from google.protobuf import json_format
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from services.cli.errors import UsageError
from services.client import Client
from services.client.tasks import TaskSource
from services.client.traces import SpanNode
from services.kernel.errors import ForgeError

_TEXT_LIMIT = 1200
_PRUNED = "trajectory pruned"


def state_of(view: episodes_pb.EpisodeView) -> str:
    """How the command names an episode's state: the enum's last word in small letters."""
    return episodes_pb.EpisodeState.Name(view.state).removeprefix("EPISODE_STATE_").lower()


def submit_task(instance: str | None, run_id: str, domain: str | None, index: int) -> None:
    """One task as a whole group."""
    with Client(instance) as client:
        view = client.run(run_id)
        allowed = [known.name for known in view.spec.domains]
        if domain not in allowed:
            raise UsageError(f"--domain: given {domain!r}; allowed {', '.join(allowed)}")
        _report(client.submit(TaskSource(run_id, view.spec).group(domain, index)))


def submit_file(instance: str | None, run_id: str, file: Path) -> None:
    """One `forgerl.gateway.v1.Submission` a line, as JSON; `run_id` may be left out."""
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    wanted: list[episodes_pb.Submission] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        submission = episodes_pb.Submission(run_id=run_id)
        try:
            json_format.Parse(line, submission)
        except json_format.ParseError as error:
            raise UsageError(f"{file}:{number}: {str(error).splitlines()[0]}") from error
        if submission.run_id != run_id:
            raise UsageError(f"{file}:{number}: run_id: given {submission.run_id!r}; allowed {run_id!r}")
        wanted.append(submission)
    with Client(instance) as client:
        _report(client.submit(wanted))


def _report(answers: list[episodes_pb.SubmitEpisodeResponse]) -> None:
    console = Console(highlight=False)
    for answer in answers:
        console.print(f"{answer.episode_id} {'submitted' if answer.created else 'was there already'}")


def list_episodes(instance: str | None, run_id: str, limit: int, *, evaluation: bool) -> None:
    """Prints one line an episode."""
    kind = task_pb2.EPISODE_KIND_EVALUATION if evaluation else task_pb2.EPISODE_KIND_UNSPECIFIED
    table = Table(box=None)
    for column in ("episode", "state", "class", "performance", "turns", "tokens", "policy", "seconds"):
        table.add_column(column, no_wrap=column == "episode")
    with Client(instance) as client:
        client.run(run_id)
        for count, view in enumerate(client.episodes(run_id, kind), start=1):
            if count > limit:
                table.add_row("…")
                break
            scored = view.HasField("score")
            steps = f"{view.first_policy_step}-{view.last_policy_step}" if view.HasField("first_policy_step") else ""
            table.add_row(
                view.submission.episode_id,
                state_of(view),
                view.score.failure_class if scored else "",
                f"{view.score.performance:.2f}" if scored else "",
                str(view.turn_count),
                str(view.sampled_tokens),
                steps,
                f"{view.agent_wall_s:.2f}",
            )
    Console(highlight=False).print(table)


def show_episode(instance: str | None, episode_id: str) -> None:
    """The tree: context nodes dim, sampled ones with tokens, mean logprob and the policies that wrote them."""
    with Client(instance) as client:
        view = client.episode(episode_id)
        transcript, pruned = _transcript(client, episode_id)
    score = ""
    if view.HasField("score"):
        score = f" · performance {view.score.performance:.2f} ({view.score.failure_class})"
    root = Tree(f"[bold]{escape(episode_id)}[/] · {state_of(view)}{score}", guide_style="dim")
    places: dict[int, Tree] = {-1: root}
    for node in transcript.nodes:
        places[node.node_id] = places.get(node.parent_id, root).add(_node_text(node))
    if pruned:
        root.add(escape(pruned))
    if view.answer:
        root.add(f"[bold]answer[/] {escape(view.answer[:_TEXT_LIMIT])}")
    if view.detail or view.score.detail:
        root.add(f"[bold]detail[/] {escape(view.detail or view.score.detail)}")
    Console(highlight=False).print(root)


def _transcript(client: Client, episode_id: str) -> tuple[episodes_pb.Transcript, str]:
    """The episode's text; or none, and when it was pruned. Raises ForgeError when it is lost for another reason."""
    try:
        return client.transcript(episode_id), ""
    except ForgeError:
        for line in client.why(episode_id).lines:
            if line.fact.startswith(_PRUNED):
                when = line.time.ToDatetime().isoformat(sep=" ", timespec="seconds")
                return episodes_pb.Transcript(), f"pruned at {when} ({line.event_id}): {line.fact}"
        raise


def _node_text(node: episodes_pb.TranscriptNode) -> str:
    message = json.loads(node.message_json or "{}")
    parts = [str(message.get("content") or "")]
    if message.get("reasoning_content") or message.get("reasoning"):
        parts.insert(0, f"<think>{message.get('reasoning_content') or message.get('reasoning')}</think>")
    for call in message.get("tool_calls") or ():
        parts.append(f"→ {call['function']['name']}({call['function']['arguments']})")
    text = escape(" ".join(part.strip() for part in parts if part)[:_TEXT_LIMIT])
    if not node.sampled:
        return f"[dim]{message.get('role', '?')} · {node.token_count} tokens[/] {text}"
    spans = ", ".join(f"policy {span.policy_step} [{span.start}:{span.end})" for span in node.spans)
    flag = " · [red]infra[/]" if node.infra else ""
    return (
        f"[green]{message.get('role', '?')}[/] · {node.token_count} tokens · mean logprob {node.mean_logprob:.3f} · "
        f"{escape(spans)} · {node.finish_reason}{flag}\n{text}"
    )


def trace_episode(instance: str | None, episode_id: str) -> None:
    """Spans as a tree, with start and duration in ms."""
    with Client(instance) as client:
        roots = client.trace(episode_id)
    tree = Tree(f"[bold]{escape(episode_id)}[/]", guide_style="dim")
    for node in roots:
        _add_span(tree, node)
    Console(highlight=False).print(tree)


def _add_span(tree: Tree, node: SpanNode) -> None:
    mark = "[red]✗[/] " if node.status == "error" else "↪ " if node.linked else ""
    label = f"{mark}{escape(node.name)} [cyan]{escape(node.service)}[/]"
    branch = tree.add(f"{label} [dim]+{node.start_s * 1000:.0f} ms · {node.duration_s * 1000:.1f} ms[/]")
    for child in node.children:
        _add_span(branch, child)


def cancel_episode(instance: str | None, episode_id: str) -> None:
    """Cancels it and prints the state that it has by then."""
    with Client(instance) as client:
        view = client.cancel(episode_id)
    Console(highlight=False).print(f"{episode_id} {state_of(view)}")
