import type { AgentEvent } from '../agents/agent-provider.ts';

/** Files that a turn wrote, as far as its agent says so. */
export interface ProducedPaths {
  note(event: AgentEvent): void;
  paths(): readonly string[];
}

const MOST_PATHS = 100;

/** What counts is the place of a completed tool call of kind `edit`: nothing is guessed from texts or from folders. */
export function createProducedPaths(): ProducedPaths {
  const found = new Set<string>();
  /** Some agents name the place when a call begins, and not again when it has ended. */
  const open = new Map<string, readonly string[]>();
  return {
    note(event) {
      if (event.kind !== 'tool_call') return;
      const { toolCallId, toolKind, status, locations } = event;
      const named = locations?.map(({ path }) => path) ?? open.get(toolCallId) ?? [];
      if (status === 'pending' || status === 'in_progress') {
        if (toolKind === 'edit' && named.length > 0 && open.size < MOST_PATHS) open.set(toolCallId, named);
        return;
      }
      const isEdit = toolKind === 'edit' || open.has(toolCallId);
      open.delete(toolCallId);
      if (status !== 'completed' || !isEdit) return;
      for (const path of named) if (found.size < MOST_PATHS) found.add(path);
    },
    paths: () => [...found],
  };
}
