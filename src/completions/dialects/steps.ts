import { AppError } from '../../platform/errors/app-error.ts';

/** Counts the work of one translation that a caller drives, and refuses the request when it grows past a limit. */
export interface Steps {
  /** Takes one step, or as many as given. Throws REQUEST_TOO_COMPLEX past the limit. */
  take(count?: number): void;
}

/**
 * One step is a message, a content part, a call, a proof of reasoning, a tool or a node of a schema. The largest real
 * requests (a thousand messages, a hundred tools) take less than half of this, and all of it takes well under 100 ms.
 */
export const MAX_STEPS = 50_000;

const PARTS = 'parts (messages, content parts, calls, tools, schema nodes)';

export function createSteps(limit: number = MAX_STEPS): Steps {
  let left = limit;
  return {
    take(count = 1) {
      left -= count;
      if (left < 0) throw new AppError('REQUEST_TOO_COMPLEX', { limit, parts: PARTS });
    },
  };
}
