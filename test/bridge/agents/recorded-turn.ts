import type { AgentEvent, AgentTurn } from '../../../src/bridge/agents/agent-provider.ts';
import { inTime } from '../../kit/in-time.ts';

export interface RecordedTurn extends AgentTurn {
  readonly events: AgentEvent[];
  readonly references: string[];
  /** All text that was said. */
  text(): string;
  toolCalls(): Extract<AgentEvent, { kind: 'tool_call' }>[];
  /** Resolves with the first event that fits. */
  when(fits: (event: AgentEvent) => boolean): Promise<AgentEvent>;
}

let count = 0;

/** A turn whose reports are kept for the test to look at. */
export function recordTurn(workingDirectory: string, prompt: string, more: Partial<AgentTurn> = {}): RecordedTurn {
  count += 1;
  const events: AgentEvent[] = [];
  const references: string[] = [];
  const waiting: { fits(event: AgentEvent): boolean; resolve(event: AgentEvent): void }[] = [];
  return {
    owner: 'main',
    usedModel: () => undefined,
    leftBehind: () => undefined,
    hop: 0,
    turnId: `turn-${count}`,
    prompt,
    workingDirectory,
    model: '',
    skills: [],
    opened: (reference) => references.push(reference),
    report(event) {
      events.push(event);
      for (const { fits, resolve } of waiting) if (fits(event)) resolve(event);
    },
    ...more,
    events,
    references,
    text: () => events.flatMap((event) => (event.kind === 'text' ? [event.text] : [])).join(''),
    toolCalls: () => events.filter((event) => event.kind === 'tool_call'),
    when(fits) {
      const known = events.find(fits);
      if (known !== undefined) return Promise.resolve(known);
      return inTime(`an event: ${fits}`, new Promise((resolve) => waiting.push({ fits, resolve })));
    },
  };
}
