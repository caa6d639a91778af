import type { AgentEvent } from './agent-provider.ts';

/** Calls at the same time; of a further one every step is passed on. */
const MOST_RUNNING_CALLS = 100;

/**
 * Agents repeat all that a running tool has printed with every line that it adds. Passed on like that, the events of one
 * long build would fill a disk: of such steps only those are worth passing on in which the output has doubled. The end of
 * a call always is, with all of the output.
 */
export function createProgressThinning(): (event: AgentEvent) => boolean {
  const passedOn = new Map<string, number>();
  return (event) => {
    if (event.kind !== 'tool_call') return true;
    if (event.status !== 'in_progress') {
      passedOn.delete(event.toolCallId);
      return true;
    }
    if (typeof event.output !== 'string' || event.output === '') return true;
    const { length } = event.output;
    const before = passedOn.get(event.toolCallId);
    if (before !== undefined && length < 2 * before) return false;
    if (before !== undefined || passedOn.size < MOST_RUNNING_CALLS) passedOn.set(event.toolCallId, length);
    return true;
  };
}
