import { createWriteStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { finished } from 'node:stream/promises';

export interface OperationLog<Operation> {
  note(operation: Operation): void;
  /** Everything that was noted, as the file has it. */
  close(): Promise<readonly Operation[]>;
}

/** One line of JSON for each operation. */
export function openOperationLog<Operation>(file: string): OperationLog<Operation> {
  const stream = createWriteStream(file, { mode: 0o600 });
  return {
    note: (operation) => void stream.write(`${JSON.stringify(operation)}\n`),
    async close() {
      stream.end();
      await finished(stream);
      const lines = (await readFile(file, 'utf8')).trimEnd().split('\n');
      return lines.map((line) => JSON.parse(line) as Operation);
    },
  };
}
