import { AppError, errorCode } from '../../platform/errors/app-error.ts';
import type { RequestHead } from '../../platform/http/surface.ts';
import type { BasePort, CredentialsPort, PeoplePort, PostPort, SessionsPort } from '../accounts-core.ts';
import type { User } from '../contract/conventions.ts';
import type { FirstAdmin, SetupOptions } from '../contract/registration.ts';
import { doesPay, planBy } from '../owners.ts';
import { createPersonCreation } from '../registration/new-user.ts';
import { plansOf } from './setup-choices.ts';

/** The first administrator: there is no account and no password before it. */
interface Setup {
  /** Returns a token for the set-up page, valid once and for 15 minutes; undefined if there is an administrator. */
  issueToken(): Promise<string | undefined>;
  /** Returns the choices of the set-up page to a caller with the link. */
  options(token: string): Promise<SetupOptions>;
  /** Creates the root user, once. */
  complete(first: FirstAdmin, head: RequestHead): Promise<{ message: string; user: User }>;
}

type Parts = BasePort & PeoplePort & CredentialsPort & SessionsPort & PostPort;

export function createSetup(parts: Parts): Setup {
  const { database, userAdministration, flows, audit } = parts;
  const createPerson = createPersonCreation(parts);

  /** Checks the link first, so that a caller without it learns nothing else. */
  async function requireLink(token: string): Promise<void> {
    if ((await flows.open('setup', token)) === undefined) throw new AppError('INVALID_TOKEN');
    if (await userAdministration.hasAdmin()) throw new AppError('SETUP_DONE');
  }

  return {
    async issueToken() {
      if (await userAdministration.hasAdmin()) return undefined;
      const { token, statement } = flows.issue('setup', {});
      await database.write([statement, audit.statement({ event: 'setup.offered', actor: 'system' })]);
      return token;
    },
    async options(token) {
      await requireLink(token);
      const settings = parts.settings();
      const { registration, default_plan: plan, leftOpen } = settings;
      const plans = plansOf(settings).map((name) => ({
        name,
        pays: doesPay(name, settings),
        bridge: planBy(name, settings)?.bridge === true,
      }));
      return {
        registration: { value: registration, isConfigured: !leftOpen.has('registration') },
        default_plan: { value: plan, isConfigured: !leftOpen.has('default_plan'), plans },
      };
    },
    async complete(first, head) {
      await requireLink(first.token);
      const { name, email, password, token } = first;
      const choices = parts.setupChoices.store(first, parts.settings());
      const { registration, default_plan } = first;
      const { user } = await createPerson({
        how: 'setup',
        name,
        email,
        emailVerified: true,
        password,
        role: 'root',
        head,
        proof: async () => [flows.take('setup', token), ...choices],
        details: { ...(registration && { registration }), ...(default_plan && { default_plan }) },
        conflict: 'INVALID_TOKEN',
      }).catch(async (error) => {
        // Another set-up has completed, perhaps with the same name or address. Any other failure is that of this request.
        const isTaken = ['EMAIL_ALREADY_EXISTS', 'NAME_ALREADY_EXISTS'].includes(errorCode(error));
        throw isTaken && (await userAdministration.hasAdmin()) ? new AppError('SETUP_DONE') : error;
      });
      if (choices.length > 0) {
        await parts.setupChoices.read();
        parts.owners.forgetPlans();
      }
      return { message: 'setup_completed', user: await parts.userObjects.describe(user) };
    },
  };
}
