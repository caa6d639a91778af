import { Secret, TOTP } from 'otpauth';
import { type Answer, GOOD_PASSWORD } from '../../../kit/accounts/accounts-client.ts';
import { loggedInAs } from '../../../kit/accounts/people.ts';
import { startAccounts } from '../../../kit/accounts/start-accounts.ts';
import type { Asked, Scenario } from '../scenario.ts';
import { storedOf } from '../stored-of.ts';
import { createAskAccounts } from './ask-accounts.ts';
import { noteStore } from './note-store.ts';
import { credentialOf, openedSince, rowsIn, sessionsOf } from './stored-rows.ts';

const STEP_MS = 30_000;
const WRONG = 'invalid_mfa_code';
const TICKET = 'invalid_mfa_ticket';

/** The second factor: switched on, used, locked, used up, switched off. */
export const secondFactorScenario: Scenario = {
  name: 'second factor',
  service: 'accounts',
  async play(stage) {
    const accounts = await startAccounts(stage.scope);
    const secrets = [GOOD_PASSWORD];
    const ask = createAskAccounts(accounts, secrets);
    const ann = await loggedInAs(accounts, 'user', 'Ann');
    stage.watch(accounts.database);

    const codes = () =>
      accounts.database.query.selectFrom('credentials').select('subject').where('kind', '=', 'recovery_code').execute();
    const totpState = async () => (await credentialOf(accounts, ann.id, 'totp'))?.state;
    const provisioned = await stage.step({
      name: 'a secret',
      ask: () => ask('POST', 'mfa/totp/provision', { token: ann.token, body: {} }),
      stored: async () => storedOf((await totpState()) === 'pending'),
    });
    const totp = new TOTP({ secret: Secret.fromBase32(provisioned?.body.secret) });
    secrets.push(provisioned?.body.secret);
    const codeNow = () => totp.generate({ timestamp: accounts.clock.now() });
    const wrongCode = () => (codeNow() === '000000' ? '111111' : '000000');
    const confirm = (code: string) => ask('POST', 'mfa/totp/verify', { token: ann.token, body: { code } });
    await stage.step({ name: 'a wrong first code', ask: () => confirm(wrongCode()), refusal: WRONG });
    const before = await sessionsOf(accounts, ann.id);
    const confirmed = await stage.step({
      name: 'the first code',
      ask: () => confirm(codeNow()),
      async stored() {
        const isOpened = (await openedSince(accounts, ann.id, before)) === 'whole';
        return storedOf((await totpState()) === 'active', (await codes()).length === 10, isOpened);
      },
      // The session that it was asked for with has ended.
      whenDone: ['invalid_session'],
    });
    const firstCode = codeNow();
    accounts.clock.stepWall(STEP_MS);

    const asked = (options: object) =>
      ask('POST', 'login', { body: { identifier: 'Ann', password: GOOD_PASSWORD, ...options } });
    const enter = async (name: string, how: () => Promise<Asked<Answer>>, rest: object = {}) => {
      const known = await sessionsOf(accounts, ann.id);
      return stage.step({ name, ask: how, stored: () => openedSince(accounts, ann.id, known), ...rest });
    };
    const ticket = async (): Promise<string> => (await stage.aside(() => asked({}))).told?.body.mfa_ticket;
    const withTicket = (mfa_ticket: string, given: object) =>
      ask('POST', 'mfa/verify', { body: { mfa_ticket, ...given } });

    await enter('the code that switched it on', () => asked({ totpCode: firstCode }), { refusal: WRONG });
    await stage.step({
      name: 'a password alone',
      ask: () => asked({}),
      stored: async () => storedOf((await rowsIn(accounts, 'flows')) > 0),
    });
    const first = await ticket();
    await enter('a wrong code', () => withTicket(first, { code: wrongCode() }), { refusal: WRONG });
    await enter('a right code', () => withTicket(first, { code: codeNow() }), { whenDone: [TICKET, WRONG] });
    await enter('a ticket that was used', () => withTicket(first, { code: codeNow() }), { refusal: TICKET });
    const second = await ticket();
    await enter('a code that was used', () => withTicket(second, { code: codeNow() }), { refusal: WRONG });
    accounts.clock.stepWall(STEP_MS);
    const both = await enter('both at once', () => asked({ totpCode: codeNow() }), { whenDone: [WRONG] });
    await enter('both at once, again', () => asked({ totpCode: codeNow() }), { refusal: WRONG });

    accounts.clock.stepWall(STEP_MS);
    const late = both?.body.token ?? (await stage.aside(() => asked({ totpCode: codeNow() }))).told?.body.token;
    accounts.clock.stepWall(STEP_MS);
    const confirmation = () => ({ token: late, body: { password: GOOD_PASSWORD, code: codeNow() } });
    await stage.step({ name: 'how it stands', ask: () => ask('GET', 'mfa/status', { token: late }) });
    const old = (await codes()).map(({ subject }) => subject);
    const unconfirmed = 'reauthentication_required';
    const renewed = await stage.step({
      name: 'new recovery codes',
      ask: () => ask('POST', 'mfa/recovery-codes', confirmation()),
      stored: async () => storedOf(...(await codes()).map(({ subject }) => !old.includes(subject))),
      whenDone: [unconfirmed],
    });
    const oldCode: string = confirmed?.body.recoveryCodes[0] ?? 'aaaa-aaaa-aaaa-aaaa-aaaa-aaaa';
    const third = await ticket();
    await enter('an old recovery code', () => withTicket(third, { recoveryCode: oldCode }), { refusal: WRONG });
    const recoveryCode: string | undefined = renewed?.body.recoveryCodes[0];
    if (recoveryCode !== undefined) {
      const use = () => withTicket(third, { recoveryCode });
      await enter('a recovery code', use, { whenDone: [TICKET, WRONG] });
      const fourth = await ticket();
      await enter('a recovery code that was used', () => withTicket(fourth, { recoveryCode }), { refusal: WRONG });
    }

    accounts.clock.stepWall(STEP_MS);
    await stage.aside(async () => {
      const limit = { policy: 'second_factor', key: ann.id, count: 4, locked_until: 0 };
      const expires_at = accounts.clock.now() + 3_600_000;
      const { query } = accounts.database;
      await query.deleteFrom('limits').where('policy', '=', 'second_factor').execute();
      await query
        .insertInto('limits')
        .values({ ...limit, expires_at })
        .execute();
    });
    const fifth = await ticket();
    const locked = 'mfa_challenge_locked';
    const guess = () => withTicket(fifth, { code: wrongCode() });
    await enter('the fifth wrong code', guess, { refusal: WRONG, whenDone: [locked] });
    await enter('a right code while it is locked', () => withTicket(fifth, { code: codeNow() }), { refusal: locked });
    accounts.clock.stepWall(6 * 60_000);
    await stage.step({
      name: 'the second factor off',
      ask: () => ask('POST', 'mfa/disable', confirmation()),
      stored: async () => storedOf((await totpState()) === undefined, (await codes()).length === 0),
      whenDone: ['mfa_not_enabled'],
    });
    await enter('the password alone is enough', () => asked({}));
    stage.mend();
    await noteStore(stage, accounts);
  },
};
