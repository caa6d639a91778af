import { type Static, Type } from 'typebox';

/** `GET /api/ping`: which release runs here. What is not known is an empty string. */
export const Ping = Type.Object({
  status: Type.Literal('ok'),
  version: Type.String(),
  contract: Type.String({ description: 'Version of the contract that this release serves.' }),
  commit: Type.String(),
  buildDate: Type.String(),
  image: Type.String(),
  tag: Type.String(),
});

export type Ping = Static<typeof Ping>;
