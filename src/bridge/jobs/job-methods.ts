import { Type } from 'typebox';
import { defineMethod, type MethodCall, type MethodRow } from '../../platform/json-rpc/method-table.ts';
import type { BridgeClient } from '../bridge-client.ts';
import {
  JobList,
  JobName,
  JobRecord,
  JobStatistics,
  ListJobsParams,
  SubmitJobParams,
  SubmittedJob,
  UnknownJob,
} from '../contract/jobs.ts';
import type { Jobs } from './create-jobs.ts';

type Call = MethodCall<BridgeClient>;

const principalOf = (call: Call) => call.caller.caller.principal;

/** Jobs exist as methods only (spec/bridge 4.4). */
export function jobMethods({ submit, reports }: Pick<Jobs, 'submit' | 'reports'>): readonly MethodRow<BridgeClient>[] {
  return [
    defineMethod({
      name: 'app.jobs.submit',
      summary: 'Puts a task into the queue; the answer comes when it is stored, before it runs.',
      params: SubmitJobParams,
      result: SubmittedJob,
      handle: (params, call: Call) => submit(params, principalOf(call)),
    }),
    defineMethod({
      name: 'app.jobs.get',
      summary: 'A job, and its result when it has ended.',
      params: JobName,
      result: Type.Union([JobRecord, UnknownJob]),
      handle: ({ jobId }, call: Call) => reports.get(principalOf(call), jobId),
    }),
    defineMethod({
      name: 'app.jobs.list',
      summary: 'Jobs, newest first, with a summary.',
      params: ListJobsParams,
      result: JobList,
      handle: (params, call: Call) => reports.list(principalOf(call), params),
    }),
    defineMethod({
      name: 'app.jobs.stats',
      summary: 'How many jobs are in which state, in all and for each agent.',
      params: Type.Object({}),
      result: JobStatistics,
      handle: (_params, call: Call) => reports.statistics(principalOf(call)),
    }),
  ];
}
