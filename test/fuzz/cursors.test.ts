import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { createJobReports } from '../../src/bridge/jobs/job-reports.ts';
import { MAIN } from '../../src/bridge/principal.ts';
import { bridgeMigrations } from '../../src/bridge/storage/bridge-migrations.ts';
import type { BridgeSchema } from '../../src/bridge/storage/bridge-schema.ts';
import { createJobReportStore } from '../../src/bridge/storage/job-report-store.ts';
import { createJobDeliveryStore, createJobStore } from '../../src/bridge/storage/job-store.ts';
import { systemClock } from '../../src/platform/clock/clock.ts';
import { AppError } from '../../src/platform/errors/app-error.ts';
import { loggedInAs } from '../kit/accounts/people.ts';
import { startAccounts } from '../kit/accounts/start-accounts.ts';
import { waitingJob } from '../kit/bridge/job-rows.ts';
import { databasePlaces, engines } from '../kit/database-engines.ts';
import fc from '../kit/properties.ts';
import { anyText, runs } from './any-input.ts';

const JOBS = 7;
const LISTS = { 'admin/users': 'users', 'admin/audit': 'entries', 'admin/blacklist': 'blacklist' } as const;

for (const engine of engines) {
  describe(`cursors on ${engine}`, () => {
    const places = databasePlaces(engine);

    test('G18: any cursor of jobs gives a page or is refused, and pages of any size show each job once', async () => {
      const database = await places.open<BridgeSchema>({ name: 'bridge', migrations: bridgeMigrations });
      const jobs = createJobStore(database);
      const list = createJobReports({
        jobs,
        reports: createJobReportStore(database),
        deliveries: createJobDeliveryStore(database),
        clock: systemClock,
      }).list;
      const ids: string[] = [];
      for (let count = 0; count < JOBS; count += 1) {
        const job = waitingJob();
        await jobs.add(job);
        ids.unshift(job.id);
      }
      const cursor = fc.oneof(anyText, fc.constantFrom(...ids), fc.stringMatching(/^job-[0-9a-z]{26}$/));
      await fc.assert(
        fc.asyncProperty(cursor, fc.integer({ min: 1, max: JOBS + 1 }), async (given, limit) => {
          const page = await list(MAIN, { cursor: given, limit }).catch((error: unknown) => {
            assert.ok(error instanceof AppError && error.code === 'INVALID_PARAMS', String(error));
            return undefined;
          });
          for (const { jobId } of page?.jobs ?? []) assert.ok(ids.includes(jobId) && (given === '' || jobId < given));
          assert.deepEqual(await allPages(limit), ids);
        }),
        runs(30),
      );

      async function allPages(limit: number): Promise<string[]> {
        const seen: string[] = [];
        for (let at: string | null = ''; at !== null; ) {
          const page: Awaited<ReturnType<typeof list>> = await list(MAIN, { cursor: at, limit });
          seen.push(...page.jobs.map(({ jobId }) => jobId));
          at = page.nextCursor;
        }
        return seen;
      }
    });

    test("G18: any cursor and limit of the administration's lists gives a page or is refused", async (t) => {
      const accounts = await startAccounts(t, { location: places.location() });
      const { token } = await loggedInAs(accounts, 'admin', 'Ann');
      const query = fc.record(
        { cursor: anyText, limit: fc.oneof(anyText, fc.integer()), search: anyText, role: anyText, event: anyText },
        { requiredKeys: ['cursor'] },
      );
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(...Object.keys(LISTS)), query, async (path, given) => {
          const entries = Object.entries(given).map(([name, value]): [string, string] => [name, String(value)]);
          const { status, body, text } = await accounts.get(`${path}?${new URLSearchParams(entries)}`, { token });
          assert.ok(status === 200 || status === 400, `${status}: ${text}`);
          if (status === 200) assert.ok(Array.isArray(body[LISTS[path as keyof typeof LISTS]]) && 'nextCursor' in body);
        }),
        runs(60),
      );
    });
  });
}
