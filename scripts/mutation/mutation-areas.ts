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
      sources: ['src/accounts/limiter/limiter.ts', 'src/accounts/login/password-check.ts'],
      judges: [
        'test/accounts/{address-key,attempt-gate,password-check}.test.ts',
        'test/contract/accounts/login.test.ts',
      ],
      without: '200 logins at once',
    },
    {
      sources: ['src/accounts/login/login.ts'],
      judges: ['test/contract/accounts/{login,mfa,tokens}.test.ts'],
      without: '200 logins at once',
    },
    {
      sources: ['src/accounts/login/{own-sessions,refresh,session-*}.ts'],
      judges: [
        'test/accounts/session-store.test.ts',
        'test/contract/accounts/{sessions,tokens,password-change}.test.ts',
      ],
    },
    {
      sources: ['src/accounts/mfa/*.ts'],
      judges: ['test/contract/accounts/{mfa,second-factor}.test.ts'],
    },
    {
      // Without the words of common passwords, which are data.
      sources: ['src/accounts/passwords/password-*.ts'],
      judges: ['test/accounts/password-hasher.test.ts', 'test/contract/accounts/password-*.test.ts'],
    },
  ],
  jobs: [
    {
      sources: ['src/bridge/jobs/job-runner.ts'],
      judges: ['test/bridge/jobs/{follow-clock,job-runner,result-card}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/{callbacks,deliveries}.ts'],
      judges: ['test/bridge/jobs/{callback-rules,deliveries,webhooks}.test.ts'],
    },
    {
      sources: ['src/bridge/jobs/!(job-runner|callbacks|deliveries).ts'],
      judges: ['test/bridge/jobs/{jobs,job-stores,several-bridges}.test.ts'],
    },
  ],
  forwarding: [
    {
      sources: ['src/bridge/forwarding/{decide-*,endpoints,forward-*,merged-jobs,node-health,update-*}.ts'],
      judges: [
        'test/bridge/forwarding/{decide-forward,endpoints,forward-*,merged-jobs,node-health,update-relay}.test.ts',
      ],
    },
    {
      sources: ['src/bridge/forwarding/{call-peer,session-routes}.ts'],
      judges: ['test/bridge/forwarding/{call-peer,forwarded-calls,scripted-nodes,session-routes}.test.ts'],
    },
    {
      sources: ['src/bridge/forwarding/{create-forwarding,follow-sessions}.ts'],
      judges: ['test/bridge/forwarding/{followed,forwarded,groups,scripted}*.test.ts'],
    },
  ],
};
