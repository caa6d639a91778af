import { createHash, createSign, generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import { isoCBOR } from '@simplewebauthn/server/helpers';
import type { RunningAccounts } from './start-accounts.ts';

export const UP = 0x01;
export const UV = 0x04;
export const AT = 0x40;

const sha256 = (data: Uint8Array | string) => createHash('sha256').update(data).digest();
export const base64url = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64url');

interface Deviation {
  readonly origin?: string;
  readonly rpId?: string;
  readonly flags?: number;
  readonly type?: string;
  readonly counter?: number;
  readonly fmt?: string;
  readonly attStmt?: Map<string, unknown>;
}

/** An authenticator with one passkey, which does what it is told: also what no real one would do. */
export function createAuthenticator(origin: string) {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const id = randomBytes(32);
  let counter = 0;
  let userHandle = '';

  const clientData = (type: string, challenge: string, from: string) =>
    Buffer.from(JSON.stringify({ type, challenge, origin: from, crossOrigin: false }));
  const authData = (rpId: string, flags: number, count: number, rest: Uint8Array = new Uint8Array()) => {
    const number = Buffer.alloc(4);
    number.writeUInt32BE(count);
    return Buffer.concat([sha256(rpId), Buffer.from([flags]), number, rest]);
  };
  const outer = { id: base64url(id), rawId: base64url(id), type: 'public-key' };

  return {
    id: base64url(id),
    // biome-ignore lint/suspicious/noExplicitAny: options as the server sends them.
    create(options: any, deviation: Deviation = {}) {
      userHandle = options.user.id;
      const { rpId = options.rp.id, flags = UP | UV | AT, fmt = 'none', attStmt = new Map() } = deviation;
      const length = Buffer.alloc(2);
      length.writeUInt16BE(id.length);
      const attested = Buffer.concat([Buffer.alloc(16), length, id, coseKey(publicKey)]);
      const attestation = new Map<string, unknown>([
        ['fmt', fmt],
        ['attStmt', attStmt],
        ['authData', new Uint8Array(authData(rpId, flags, counter, attested))],
      ]);
      const data = clientData(deviation.type ?? 'webauthn.create', options.challenge, deviation.origin ?? origin);
      return {
        ...outer,
        response: {
          clientDataJSON: base64url(data),
          attestationObject: base64url(isoCBOR.encode(attestation as never)),
          transports: ['internal'],
        },
      };
    },
    // biome-ignore lint/suspicious/noExplicitAny: options as the server sends them.
    get(options: any, deviation: Deviation = {}) {
      counter = deviation.counter ?? counter + 1;
      const { rpId = options.rpId, flags = UP | UV } = deviation;
      const data = clientData(deviation.type ?? 'webauthn.get', options.challenge, deviation.origin ?? origin);
      const authenticatorData = authData(rpId, flags, counter);
      const signature = createSign('sha256')
        .update(Buffer.concat([authenticatorData, sha256(data)]))
        .sign(privateKey);
      return {
        ...outer,
        response: {
          clientDataJSON: base64url(data),
          authenticatorData: base64url(authenticatorData),
          signature: base64url(signature),
          userHandle,
        },
      };
    },
  };
}

function coseKey(key: KeyObject): Uint8Array {
  const { x = '', y = '' } = key.export({ format: 'jwk' });
  const coordinate = (part: string) => new Uint8Array(Buffer.from(part, 'base64url'));
  const entries: [number, number | Uint8Array][] = [
    [1, 2],
    [3, -7],
    [-1, 1],
    [-2, coordinate(x)],
    [-3, coordinate(y)],
  ];
  return isoCBOR.encode(new Map(entries) as never);
}

/** Browsers let `localhost` have passkeys, and no number. */
export const originOf = (accounts: RunningAccounts) => accounts.url.replace('127.0.0.1', 'localhost');
