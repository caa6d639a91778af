import { createWriteStream } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import type { FaultFigure, FaultReport } from './fault-suite.ts';

export interface OperationLog<Operation> {
  note(operation: Operation): void;
  /** Everything that was noted, as the file has it. */
  close(): Promise<readonly Operation[]>;
  /** Removes the file when nothing was violated; otherwise says where it is. */
  settle(violations: readonly string[], say: (line: string) => void): Promise<void>;
  /** Closes and settles it, and judges the run by what it holds. */
  report(judge: Judge<Operation>): Promise<FaultReport>;
}

interface Judge<Operation> {
  check(operations: readonly Operation[]): readonly string[];
  figures(operations: readonly Operation[]): readonly FaultFigure[];
  say(line: string): void;
}

/** One line of JSON for each operation, in a file that bears the name. */
export function openOperationLog<Operation>(name: string): OperationLog<Operation> {
  const file = join(tmpdir(), `trestle-faults-${name}-${process.pid}.log`);
  const stream = createWriteStream(file, { mode: 0o600 });
  const log: OperationLog<Operation> = {
    note: (operation) => void stream.write(`${JSON.stringify(operation)}\n`),
    async close() {
      stream.end();
      await finished(stream);
      const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
      return lines.map((line) => JSON.parse(line) as Operation);
    },
    async settle(violations, say) {
      if (violations.length === 0) await rm(file, { force: true });
      else say(`the log is ${file}`);
    },
    async report({ check, figures, say }) {
      const operations = await log.close();
      const violations = check(operations);
      await log.settle(violations, say);
      return { violations, figures: figures(operations) };
    },
  };
  return log;
}
