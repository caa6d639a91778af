import { type Static, Type } from 'typebox';
import type { Route } from '../../platform/http/surface.ts';
import type { AccountsCore } from '../accounts-core.ts';
import { User } from '../contract/user.ts';
import { cookieText, readCookie, VERIFICATION_COOKIE } from '../cookies.ts';
import { BODY_LIMIT } from '../limits.ts';
import type { Registration } from './registration.ts';

const Email = Type.Object({ email: Type.String({ examples: ['ann@example.org'] }) });
const Code = Type.Object({ ...Email.properties, code: Type.String({ examples: ['123456'] }) });
const Application = Type.Object({
  name: Type.Optional(Type.String({ examples: ['Ann'] })),
  email: Type.Optional(Type.String({ examples: ['ann@example.org'] })),
  password: Type.Optional(Type.String()),
  code: Type.Optional(Type.String({ description: 'The mailed code; or the token of register/verify instead.' })),
  verificationToken: Type.Optional(Type.String()),
});
const Message = Type.Object({ message: Type.String() });
const Verified = Type.Object({
  message: Type.String(),
  verified: Type.Literal(true),
  verificationToken: Type.String(),
});
const Registered = Type.Object({ message: Type.String(), user: User });

type Parts = Pick<AccountsCore, 'access' | 'userObjects' | 'clock' | 'cookiesAreSecure'>;

export function registrationRoutes(parts: Parts, registration: Registration): readonly Route[] {
  const guard = parts.access.anyone();
  return [
    {
      method: 'POST',
      path: '/api/auth/register/send',
      guard,
      summary: 'Mails a verification code.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Email, response: { 200: Message } },
      async handle({ body, head }) {
        await registration.sendCode((body as Static<typeof Email>).email, head);
        return { message: 'verification_sent' };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/register/verify',
      guard,
      summary: 'Checks a verification code, and gives a token that stands for it.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Code, response: { 200: Verified } },
      async handle({ body, head, reply }) {
        const { email, code } = body as Static<typeof Code>;
        const { token, expiresAt } = await registration.verify(email, code, head);
        const maxAgeSeconds = Math.floor((expiresAt - parts.clock.now()) / 1000);
        const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds };
        reply.header('set-cookie', cookieText(VERIFICATION_COOKIE, token, options));
        return { message: 'verified', verified: true, verificationToken: token };
      },
    },
    {
      method: 'POST',
      path: '/api/auth/register',
      guard,
      summary: 'Registers a user; nobody is logged in by it.',
      body: 'json',
      bodyLimit: BODY_LIMIT,
      schema: { body: Application, response: { 201: Registered } },
      async handle({ body, head, reply }) {
        const given = body as Static<typeof Application>;
        const verificationToken = given.verificationToken ?? readCookie(head, VERIFICATION_COOKIE);
        const user = await registration.register({ ...given, verificationToken }, head);
        const options = { secure: parts.cookiesAreSecure(head), maxAgeSeconds: 0 };
        reply.code(201).header('set-cookie', cookieText(VERIFICATION_COOKIE, '', options));
        return { message: 'registered', user: await parts.userObjects.describe(user) };
      },
    },
  ];
}
