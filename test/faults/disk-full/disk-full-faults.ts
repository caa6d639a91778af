import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { FaultReport, FaultSuite } from '../fault-suite.ts';

const IN_NAMESPACE = fileURLToPath(new URL('in-namespace.ts', import.meta.url));
/** A program that is run by this sees mounts of its own, and needs no rights for it. */
const UNSHARE = { command: 'unshare', flags: ['--map-root-user', '--mount'] };

/**
 * Lets the disk of a running bridge become full, again and again. The small disk is mounted where only a process of its
 * own sees it: that needs no rights, and nothing of it is left however the run ends.
 */
export const diskFullFaults: FaultSuite = async ({ cycles, seed, say }) => {
  const problem = await whyNoNamespace();
  if (problem !== '') return { violations: [], figures: [], impossible: problem };
  const args = [...UNSHARE.flags, process.execPath, IN_NAMESPACE, String(cycles), String(seed)];
  const child = spawn(UNSHARE.command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  let report: FaultReport | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    // What it has to say comes line by line, and the report as the only one that is an object.
    if (line.startsWith('{')) report = JSON.parse(line) as FaultReport;
    else say(line);
  }
  if (report === undefined) throw new Error('the run in its own namespace ended without a report');
  return report;
};

async function whyNoNamespace(): Promise<string> {
  const child = spawn(UNSHARE.command, [...UNSHARE.flags, 'true'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const errors: string[] = [];
  child.stderr.setEncoding('utf8').on('data', (text: string) => errors.push(text));
  try {
    const [code] = (await once(child, 'close')) as [number | null];
    return code === 0 ? '' : `a small disk cannot be mounted here (${errors.join('').trim()})`;
  } catch (error) {
    return `a small disk cannot be mounted here (${String(error)})`;
  }
}
