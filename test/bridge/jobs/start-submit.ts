import assert from 'node:assert/strict';
import type { SubmitJobParams } from '../../../src/bridge/contract/jobs.ts';
import { createSubmitJob, type SubmitJobOptions } from '../../../src/bridge/jobs/submit-job.ts';
import { MAIN, principalOf } from '../../../src/bridge/principal.ts';
import type { JobRow } from '../../../src/bridge/storage/bridge-schema.ts';
import { AppError } from '../../../src/platform/errors/app-error.ts';
import type { Principal } from '../../../src/platform/identity/principal.ts';
import { makeId } from '../../kit/bridge/job-rows.ts';
import { createFakeClock } from '../../kit/fake-clock.ts';

/** Submits to a store in memory, with fakes that note what they are asked. */
export function startSubmit(changes: Partial<SubmitJobOptions> = {}, earlier: readonly JobRow[] = []) {
  const clock = createFakeClock();
  const jobs: JobRow[] = [...earlier];
  const asked: string[] = [];
  let submits = 0;
  const submission = createSubmitJob({
    store: {
      async add(job) {
        const isUsed = (one: JobRow) => one.owner === job.owner && one.idempotency_key === job.idempotency_key;
        if (job.idempotency_key !== null && jobs.some(isUsed)) throw new AppError('STORAGE_DUPLICATE');
        jobs.push(job);
      },
      find: async (id) => jobs.find((job) => job.id === id),
      findByKey: async (owner, key) => jobs.find((job) => job.owner === owner && job.idempotency_key === key),
    },
    async countOpen(owner) {
      const open = jobs.filter((job) => (job.owner === owner || job.member === owner) && job.completed_at === null);
      return { pending: open.length, running: 0 };
    },
    principalFor: async (owner, member) => {
      asked.push(`principal ${owner} ${member}`);
      return principalOf(owner);
    },
    maxWaitingOfOwner: 5,
    agentIds: ['one', 'two'],
    gatewayId: 'far',
    clock,
    makeId,
    async route({ routing }) {
      asked.push(`route ${JSON.stringify(routing)}`);
      return { resolvedProviderId: 'routed', resolvedGatewayProviderId: '' } as never;
    },
    async keepFiles(owner, _params, until) {
      asked.push(`files ${owner} ${until - clock.now()}`);
      return {};
    },
    checkDirectory: async (path, owner) => void asked.push(`directory ${path} ${owner}`),
    serverBox: {
      seal: (key, servers) => (servers.length === 0 ? '' : JSON.stringify([key, servers])),
      open: (key, sealed) => {
        if (sealed === '') return [];
        const [sealedFor, servers] = JSON.parse(sealed) as [string, []];
        assert.equal(sealedFor, key);
        return servers;
      },
    },
    checkServers: (servers, folder) => {
      if (servers.length > 0) asked.push(`servers ${servers.map(({ name }) => name).join()} ${folder}`);
    },
    checkGatewayOwner: (owner) => void asked.push(`gateway ${owner}`),
    async checkCallback(url) {
      asked.push(`callback ${url}`);
      return `${url}checked`;
    },
    onSubmitted: () => {
      submits += 1;
    },
    ...changes,
  });
  const submit = (params: SubmitJobParams, principal: Principal = MAIN) =>
    submission.submit({ taskPrompt: 'task', ...params }, principal);
  /** The stored job of a submit. */
  const stored = async (params: SubmitJobParams, principal: Principal = MAIN): Promise<JobRow> => {
    const { jobId } = await submit(params, principal);
    const job = jobs.find(({ id }) => id === jobId);
    assert.ok(job);
    return job;
  };
  /** The same without a prompt of its own. */
  const repeat = async (params: SubmitJobParams, principal: Principal): Promise<JobRow> => {
    const { jobId } = await submission.submit(params, principal);
    return jobs.find(({ id }) => id === jobId) as JobRow;
  };
  return { ...submission, submit, stored, repeat, jobs, asked, clock, submits: () => submits };
}

/** What is stored of a submit. */
export const requestOf = ({ request }: JobRow) => JSON.parse(request) as Record<string, unknown>;
/** Checks that it fails with this code, and that its details fit the pattern. */
export const refused = (work: Promise<unknown>, code: string, reason?: RegExp) =>
  assert.rejects(work, (error: AppError) => {
    assert.equal(error.code, code);
    if (reason !== undefined) assert.match(JSON.stringify(error.details), reason);
    return true;
  });
