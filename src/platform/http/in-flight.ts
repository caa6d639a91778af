import type { ServerResponse } from 'node:http';

/** What is under way. */
export interface InFlight {
  begin(response: ServerResponse): void;
  end(response: ServerResponse): void;
  count(): number;
  whenIdle(): Promise<void>;
  /** Lets every answer that has not begun say that its connection closes after it. */
  closeAfterAnswers(): void;
}

export function createInFlight(): InFlight {
  const open = new Set<ServerResponse>();
  let waiting: (() => void)[] = [];
  return {
    begin(response) {
      open.add(response);
    },
    end(response) {
      open.delete(response);
      if (open.size !== 0 || waiting.length === 0) return;
      const resolved = waiting;
      waiting = [];
      for (const resolve of resolved) resolve();
    },
    count: () => open.size,
    whenIdle: () => (open.size === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
    closeAfterAnswers() {
      for (const response of open) response.shouldKeepAlive = false;
    },
  };
}
