import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createPasswordHasher } from '../../../src/accounts/passwords/passwords.ts';
import { emailOf, seedAccounts } from '../../kit/accounts/seed-accounts.ts';
import { type Scope, startProgram, temporaryFolder } from '../../kit/running-program.ts';
import { type Samples, takeSamples } from '../../kit/samples.ts';

/** Calls by which a stranger might learn who has an account: `first` about people who do, `second` about people who do not. */
export interface EnumerationTimes {
  readonly name: string;
  readonly samples: Samples;
  /** Answers with another status or body than most, or not the one that is timed: must be none. */
  readonly otherAnswers: number;
}

const PASSWORD = 'copper kettle 47 over the pass';
const WARM_UP = 10;

interface Probe {
  readonly name: string;
  readonly path: string;
  body(email: string, index: number): object;
  /** The start of the answer that is timed: a refusal before the work would say nothing. */
  readonly answer: string;
}

const PROBES: readonly Probe[] = [
  { name: 'A-01: register/send', path: 'register/send', body: (email) => ({ email }), answer: '200' },
  {
    name: 'A-01: register with a wrong code',
    path: 'register',
    body: (email, index) => ({ name: `stranger ${index}`, email, password: PASSWORD, code: 'wrong' }),
    answer: '400 {"error":"invalid_code"',
  },
  {
    name: 'A-13: login with a wrong password',
    path: 'login',
    body: (identifier) => ({ identifier, password: 'wrong' }),
    answer: '401 {"error":"invalid_credentials"',
  },
];

/** Asks the program as a user starts it, each time from another address and about another person. */
export async function timeEnumeration(
  scope: Scope,
  count: number,
  random: () => number,
): Promise<readonly EnumerationTimes[]> {
  const folder = await temporaryFolder(scope);
  const passwordHash = await createPasswordHasher({ concurrency: 1 }).hash(PASSWORD);
  await seedAccounts({ folder, users: count + WARM_UP + 1, passwordHash });
  const config = join(folder, 'trestle.yaml');
  await writeFile(config, JSON.stringify({ trusted_proxies: ['127.0.0.1/32'], accounts: { registration: 'open' } }));
  const args = ['accounts', '--config', config, '--log-level', 'silent'];
  const { url } = await startProgram(scope, { args, dataDirectory: folder });
  let calls = 0;

  async function timeProbe({ name, path, body, answer }: Probe): Promise<EnumerationTimes> {
    const answers = new Map<string, number>();
    const time = async (email: string, index: number): Promise<number> => {
      calls += 1;
      const started = performance.now();
      const response = await fetch(`${url}/api/auth/${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-forwarded-for': addressOf(calls) },
        body: JSON.stringify(body(email, index)),
      });
      const text = await response.text();
      const ms = performance.now() - started;
      const { requestId: _, ...rest } = JSON.parse(text) as Record<string, unknown>;
      const shown = `${response.status} ${JSON.stringify(rest)}`;
      answers.set(shown, (answers.get(shown) ?? 0) + 1);
      return ms;
    };
    const known = (index: number) => time(emailOf(index), index);
    const unknown = (index: number) => time(`nobody.${index}@example.org`, index);
    await takeSamples(
      WARM_UP,
      random,
      (index) => known(count + index),
      (index) => unknown(count + index),
    );
    const samples = await takeSamples(count, random, known, unknown);
    const total = [...answers.values()].reduce((sum, value) => sum + value, 0);
    const expected = [...answers].filter(([shown]) => shown.startsWith(answer)).map(([, count]) => count);
    return { name, samples, otherAnswers: total - Math.max(0, ...expected) };
  }

  const results: EnumerationTimes[] = [];
  for (const probe of PROBES) results.push(await timeProbe(probe));
  return results;
}

/** Another one each time: limits of one address are not what is measured. */
function addressOf(call: number): string {
  return `10.${(call >> 16) & 255}.${(call >> 8) & 255}.${call & 255}`;
}
