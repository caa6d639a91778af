/** Sources that are mutated, and the tests that should notice. All patterns are from the root of the project. */
export interface MutationPart {
  readonly sources: readonly string[];
  /** The fewer the quicker: those that are about these sources, and not all that reach them. */
  readonly judges: readonly string[];
  /** Tests that take long and are about something else, by parts of their names with `|` between them. */
  readonly without?: string;
}

/** By the name that `npm run mutation -- NAME` takes. */
export const MUTATION_AREAS: Readonly<Record<string, readonly MutationPart[]>> = {
  // What keeps callbacks, nodes and upstreams from leading into the operator's network.
  'network-address': [
    {
      sources: ['src/platform/network-address/{classify-address,ip-address}.ts'],
      judges: [
        'test/platform/network-address/{address-matcher,classify-address}.test.ts',
        'test/platform/config/listen-address.test.ts',
      ],
      // Thousands of addresses by chance take longer than all others together.
      without: 'classification never throws|an IPv4 address has the same class',
    },
    {
      sources: ['src/platform/network-address/outgoing-proxy.ts'],
      judges: ['test/platform/network-address/outgoing-proxy.test.ts'],
    },
  ],
  // Without the routes, which are mostly words and shapes: who may call them is judged for all routes together.
  login: [
    {
      sources: ['src/accounts/login/password-check.ts'],
      judges: ['test/accounts/password-check.test.ts', 'test/contract/accounts/login.test.ts'],
      without: '200 logins at the same time',
    },
    {
      sources: ['src/accounts/login/login.ts'],
      judges: ['test/contract/accounts/{login,mfa,tokens}.test.ts'],
      without: '200 logins at the same time',
    },
    {
      sources: ['src/accounts/login/{kept-sessions,session-check,session-opening}.ts'],
      judges: [
        'test/accounts/{session-check,session-store}.test.ts',
        'test/contract/accounts/{sessions,tokens,password-change}.test.ts',
      ],
    },
    {
      // Without the words of common passwords, which are data.
      sources: ['src/accounts/passwords/{password-change,passwords}.ts'],
      judges: ['test/accounts/password-hasher.test.ts', 'test/contract/accounts/password-{change,policy}.test.ts'],
    },
  ],
  mfa: [
    {
      sources: ['src/accounts/mfa/*.ts'],
      judges: ['test/contract/accounts/{mfa,second-factor}.test.ts'],
    },
  ],
  // Without those that wait for a real clock or a real PostgreSQL: on a busy machine they fail without a fault.
  jobs: [
    {
      sources: ['src/bridge/jobs/{job-record,job-runner}.ts'],
      judges: ['test/bridge/jobs/{follow-clock,job-queue,job-record,job-runner}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/deliveries.ts'],
      judges: ['test/bridge/jobs/{deliveries,result-card,webhooks}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/job-ends.ts'],
      judges: ['test/bridge/jobs/{job-ends,rest,sweep-old-jobs}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/{job-reports,submit-job}.ts'],
      judges: ['test/bridge/jobs/{job-reports,repeated-jobs,submit-job}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/create-jobs.ts'],
      judges: ['test/bridge/jobs/create-jobs.test.ts'],
    },
  ],
  forwarding: [
    {
      sources: ['src/bridge/forwarding/{decide-forward,endpoints,node-health}.ts'],
      judges: ['test/bridge/forwarding/{decide-forward,endpoints,node-health}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/{forward-call,forwarding-dispatch}.ts'],
      judges: ['test/bridge/forwarding/{forward-call,forward-headers,forwarding-dispatch,node-health}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/{merged-jobs,session-routes}.ts'],
      judges: ['test/bridge/forwarding/{merged-jobs,session-routes}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/call-node.ts'],
      judges: ['test/bridge/forwarding/{call-peer,forward-headers}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/update-relay.ts'],
      judges: ['test/bridge/forwarding/{follow-peer,session-following,update-relay}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/create-forwarding.ts'],
      judges: ['test/bridge/forwarding/create-forwarding.test.ts'],
    },
  ],
  // Who may do what, and what an agent may do without asking.
  permissions: [
    {
      sources: ['src/accounts/permissions.ts'],
      judges: ['test/accounts/permissions.test.ts', 'test/console/permission-table.test.ts'],
    },
    {
      sources: ['src/accounts/access.ts'],
      judges: ['test/accounts/access.test.ts'],
    },
    {
      sources: ['src/bridge/{access,principal}.ts'],
      judges: ['test/bridge/{access,principal}.test.ts', 'test/bridge/forwarding/node-access.test.ts'],
    },
    {
      sources: ['src/bridge/workbench/{permission-rows,permission-rules,permissions}.ts'],
      judges: ['test/bridge/workbench/{asked-permissions,permission-rows,permission-rules}.test.ts'],
    },
  ],
  limits: [
    {
      sources: ['src/platform/limits/*.ts'],
      judges: ['test/platform/limits/*.test.ts'],
    },
    {
      sources: ['src/accounts/limiter/limiter.ts'],
      judges: ['test/accounts/{address-key,attempt-gate,limiter}.test.ts'],
    },
    {
      sources: ['src/bridge/sessions/turn-limits.ts'],
      judges: ['test/bridge/sessions/turn-limits.test.ts'],
    },
    {
      sources: ['src/completions/keys/rate-limits.ts'],
      judges: ['test/completions/keys/rate-limits.test.ts'],
    },
  ],
};
