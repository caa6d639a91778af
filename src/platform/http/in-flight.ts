/** How much is under way. */
export interface InFlight {
  begin(): void;
  end(): void;
  count(): number;
  whenIdle(): Promise<void>;
}

export function createInFlight(): InFlight {
  let count = 0;
  let waiting: (() => void)[] = [];
  return {
    begin() {
      count += 1;
    },
    end() {
      count -= 1;
      if (count !== 0 || waiting.length === 0) return;
      const resolved = waiting;
      waiting = [];
      for (const resolve of resolved) resolve();
    },
    count: () => count,
    whenIdle: () => (count === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
  };
}
