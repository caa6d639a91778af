import { readFile } from 'node:fs/promises';
import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { User } from '../contract/user.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { Setup } from './setup.ts';
import { setupPage } from './setup-page.ts';

const FirstAdmin = Type.Object({
  token: Type.String({ description: 'From the link that was printed at the start.' }),
  name: Type.String({ examples: ['Ann'] }),
  email: Type.String({ examples: ['ann@example.org'] }),
  password: Type.String(),
});
const Made = Type.Object({ message: Type.String(), user: User });
const page = (type: string) => Type.Unsafe<string>({ type: 'string', contentMediaType: type });

/** Nothing but our own two files and the empty icon that the page names, and no markup made from data. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

/** The set-up of the first administrator: a page, and what it sends. */
export function setupRoutes(
  { access, userAdministration, userObjects }: Pick<AccountsCore, 'access' | 'userAdministration' | 'userObjects'>,
  setup: Setup,
): readonly Route[] {
  const guard = access.anyone();

  const asset = (name: 'setup.js' | 'setup.css', type: string): Route => ({
    method: 'GET',
    path: `/setup/${name}`,
    guard,
    summary: 'A part of the set-up page.',
    schema: { response: { 200: page(type) } },
    async handle({ reply }) {
      const text = await readFile(new URL(`browser/${name}`, import.meta.url), 'utf8');
      return reply.type(`${type}; charset=utf-8`).send(text);
    },
  });

  return [
    {
      method: 'GET',
      path: '/setup',
      guard,
      summary: 'The page on which the first administrator is made.',
      schema: { response: { 200: page('text/html') } },
      async handle({ reply }) {
        const page = setupPage(await userAdministration.hasAdmin());
        reply.header('content-security-policy', POLICY).header('cross-origin-opener-policy', 'same-origin');
        return reply.type('text/html; charset=utf-8').send(page);
      },
    },
    asset('setup.js', 'text/javascript'),
    asset('setup.css', 'text/css'),
    {
      method: 'POST',
      path: '/api/auth/setup',
      guard,
      summary: 'Makes the first administrator, once, by the token of the printed link.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: FirstAdmin, response: { 201: Made } },
      async handle({ body, head, reply }) {
        const user = await setup.complete(body as Static<typeof FirstAdmin>, head);
        reply.code(201);
        return { message: 'setup_completed', user: await userObjects.describe(user) };
      },
    },
  ];
}
