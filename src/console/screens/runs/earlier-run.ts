import type { UpdatePage } from '../../../bridge/contract/workbench.ts';
import { listTurns, listUpdates, readSession, type SessionName } from '../../data/bridge.ts';
import { foldRuns, RUN_KINDS, type Run } from '../../live/fold-run.ts';

export type Update = UpdatePage['updates'][number];

const PAGE = 2000;
/** A session with more pages of updates shows its newest runs only. */
const MAX_PAGES = 20;

/** The updates that runs are drawn from: all that are stored, oldest first. */
export async function readRunUpdates(name: SessionName): Promise<{ updates: Update[]; lastSeq: number }> {
  const kinds = RUN_KINDS.join(',');
  let page = await listUpdates(name, { kinds, limit: PAGE });
  const { lastSeq } = page;
  let { updates } = page;
  for (let count = 1; page.hasEarlier && count < MAX_PAGES; count += 1) {
    page = await listUpdates(name, { kinds, limit: PAGE, beforeSeq: page.firstSeq });
    updates = [...page.updates, ...updates];
  }
  return { updates, lastSeq };
}

/** What a run was started with. */
export interface EarlierRun extends Pick<Run, 'mode' | 'rounds' | 'steps'> {
  readonly task: string;
  readonly folder: string;
}

/** Reads what a run was started with; undefined where it is not stored any more. */
export async function readEarlierRun(name: SessionName, turnId: string): Promise<EarlierRun | undefined> {
  const [{ updates }, { session }] = await Promise.all([readRunUpdates(name), readSession(name)]);
  const run = foldRuns(updates).find((one) => one.turnId === turnId);
  if (run === undefined) return undefined;
  for (let before: string | undefined; ; ) {
    const page = await listTurns(name, before);
    const turn = page.turns.find((one) => one.turnId === turnId);
    const { mode, rounds, steps } = run;
    if (turn !== undefined) return { mode, rounds, steps, task: turn.prompt, folder: session.folder };
    before = page.nextCursor ?? undefined;
    if (before === undefined) return undefined;
  }
}
