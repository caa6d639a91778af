import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createEndWork } from '../../src/bridge/team-work.ts';
import type { Owner, Payer } from '../../src/platform/identity/owner.ts';
import { silentLogger } from '../kit/silent-logger.ts';

const PERSON = 'user:usr_1';
const ALL: readonly Payer[] = [
  { owner: PERSON },
  { owner: 'user:usr_2' },
  { owner: 'team:team_a', member: PERSON },
  { owner: 'team:team_b', member: PERSON },
  { owner: 'team:team_a', member: 'user:usr_2' },
];

/** Whose work between turns ends when a person changes. */
function endedBy(changed: Partial<Owner>): readonly Payer[] {
  const ended: Payer[] = [];
  const endWork = createEndWork({
    orchestrator: { cancelWhere: () => undefined },
    jobs: { endAllOf: async () => undefined, endLeft: () => undefined },
    providers: new Map([
      ['plain', {}],
      ['builtin', { endWhere: (isMeant: (payer: Payer) => boolean) => void ended.push(...ALL.filter(isMeant)) }],
    ]),
    logger: silentLogger,
  });
  const bucket = { id: 'team:team_a', name: 'the team', limits: {} };
  const team = { id: 'team_a', allowed: undefined, bridge: true, plan: '', budget: undefined, bucket };
  endWork({
    id: PERSON,
    state: 'active',
    role: 'user',
    plan: '',
    allowed: undefined,
    buckets: [],
    teams: [team],
    bridge: true,
    revision: 1,
    ...changed,
  });
  return ended;
}

test('end what runs for a person who may not work any more, for themselves and for teams', () => {
  assert.deepEqual(endedBy({ state: 'blocked' }), [ALL[0], ALL[2], ALL[3]]);
  assert.deepEqual(endedBy({ bridge: false }), [ALL[0], ALL[2], ALL[3]]);
});

test('end what runs for a team that a person has left, and nothing else', () => {
  assert.deepEqual(endedBy({}), [ALL[3]]);
});
