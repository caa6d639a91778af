import { readFile } from 'node:fs/promises';

/** What a process holds in memory; NaN when it has ended, or where the system does not tell. */
export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '');
  return Number(/^VmRSS:\s{1,20}(\d{1,15}) kB$/m.exec(status)?.[1]) * 1024;
}
