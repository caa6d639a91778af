import type { Route } from '../../platform/http/surface.ts';
import { UsageQuery, UsageReport } from '../contract/usage.ts';
import type { KeyHolder } from '../keys/admission.ts';
import type { KeyAccess } from '../keys/key-access.ts';
import type { createUsageReport } from './usage-report.ts';

/** The row of usage reports, under both path families (contract/completions 6). */
export function usageRoutes(
  prefix: '' | '/v1',
  { access, report }: { readonly access: KeyAccess; readonly report: ReturnType<typeof createUsageReport> },
): readonly Route<KeyHolder>[] {
  return [
    {
      method: 'GET',
      path: `${prefix}/usage`,
      guard: access.withKey,
      summary: 'Report usage and cost: of your own key, or of all with the master key.',
      schema: { query: UsageQuery, response: { 200: UsageReport } },
      handle: ({ caller, query }) => report(caller, query as UsageQuery),
    },
  ];
}
