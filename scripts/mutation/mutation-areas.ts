/** Sources that are mutated, and the tests that should notice. All patterns are from the root of the project. */
export interface MutationPart {
  readonly sources: readonly string[];
  /** The fewer the quicker: those that are about these sources, and not all that reach them. */
  readonly judges: readonly string[];
  /** Tests that take long and are about something else, by a part of their names. */
  readonly without?: string;
}

/** By the name that `npm run mutation -- NAME` takes. */
export const MUTATION_AREAS: Readonly<Record<string, readonly MutationPart[]>> = {
  // What keeps callbacks, nodes and upstreams from leading into the operator's network.
  'network-address': [
    {
      sources: ['src/platform/network-address/*.ts'],
      judges: ['test/platform/network-address/*.test.ts'],
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
  jobs: [
    {
      sources: ['src/bridge/jobs/{job-record,job-runner}.ts'],
      judges: ['test/bridge/jobs/{follow-clock,job-record,job-runner,result-card}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/deliveries.ts'],
      judges: ['test/bridge/jobs/{callback-rules,deliveries,webhooks}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/{create-jobs,job-ends,job-reports,submit-job}.ts'],
      judges: [
        'test/bridge/jobs/{callback-rules,job-options,jobs,jobs-in-sessions,rest,several-bridges,sweep-old-jobs}.test.ts',
      ],
    },
  ],
  forwarding: [
    {
      sources: ['src/bridge/forwarding/{call-node,decide-forward,endpoints,forward-call,node-health,update-relay}.ts'],
      judges: [
        'test/bridge/forwarding/{call-peer,decide-forward,endpoints,forward-*,node-health,update-relay}.test.ts',
      ],
    },
    {
      sources: ['src/bridge/forwarding/{forwarding-dispatch,merged-jobs,session-routes}.ts'],
      judges: [
        'test/bridge/forwarding/{forwarded-calls,merged-jobs,node-health,scripted-nodes,session-routes}.test.ts',
      ],
    },
    {
      sources: ['src/bridge/forwarding/create-forwarding.ts'],
      judges: ['test/bridge/forwarding/{followed,forwarded,groups,scripted}-*.test.ts'],
    },
  ],
  // Who may do what, and what an agent may do without asking.
  permissions: [
    {
      sources: ['src/accounts/permissions.ts'],
      judges: ['test/accounts/permissions.test.ts', 'test/console/permission-table.test.ts'],
    },
    {
      sources: ['src/{accounts,bridge}/access.ts', 'src/bridge/principal.ts'],
      judges: [
        'test/bridge/forwarding/node-access.test.ts',
        'test/contract/bridge/{access,session-access}.test.ts',
        'test/guards/principal.test.ts',
      ],
    },
    {
      sources: ['src/bridge/workbench/{permission-rows,permission-rules,permissions}.ts'],
      judges: ['test/bridge/workbench/{permission-rules,permissions,questions}.test.ts'],
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
